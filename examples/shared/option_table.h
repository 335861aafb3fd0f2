#pragma once

#include <tapeformer/autograd/text/config_json.h>
#include <tapeformer/examples/shared/command_line.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

// Options of a program, described as the fields of a configuration are: see config_field.h.
namespace tapeformer {

/// "--learning-rate" of learning_rate.
inline std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

/// A flag that says the opposite of `member`.
template <class Member>
auto negated(Member& member) {
  return Property{[&member] { return !member; }, [&member](const auto& value) { member = !value; }};
}

/// A flag for every option of type bool, and an option with a value for the others, or with any number for
/// lists.
template <class Options>
void add_options(const Command& command, Options& options) {
  for_each_field(options, [&](const Field& field, auto&& member) {
    using Value = FieldValue<decltype(member)>;
    const std::string flag = flag_of(field.name), help = field.help;
    if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      command.option(flag, member, help).group(field.group);
    } else if constexpr (detail::is_property<std::decay_t<decltype(member)>>) {
      const auto set = [flag, member](const Value& value) {
        try {
          set_value(member, value);
        } catch (const Error& error) {
          throw Error(flag + ": " + error.what());
        }
      };
      command.value<Value>(flag, value_of(member), set, help, field.rule).group(field.group).take_last();
    } else {
      const auto set = [&member](const Value& value) { member = value; };
      command.value<Value>(flag, member, set, help, field.rule).group(field.group).take_last();
    }
  });
}

/// An option that an older run lacks keeps its default.
/// Throws: CheckpointError that names an unusable or unknown option
template <class Options>
void read_options(const nlohmann::ordered_json& json, Options& options) {
  try {
    read_fields(json, options);
  } catch (const Error& error) {
    throw CheckpointError(std::string("the training's options are not usable: ") + error.what());
  }
}

/// Throws: Error "--NAME RULE; got VALUE" for a number outside its option's range
template <class Options>
void check_options(const Options& options) {
  for_each_field(options, [](const Field& field, const auto& member) {
    check_rule(flag_of(field.name), field, value_of(member));
  });
}

}  // namespace tapeformer
