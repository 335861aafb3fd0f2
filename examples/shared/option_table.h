#pragma once

#include <tapeformer/autograd/text/config_json.h>
#include <tapeformer/autograd/text/json.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/run_folder.h>

#include <algorithm>
#include <filesystem>
#include <functional>
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

inline void require(bool holds, const std::string& rule) {
  if (!holds) throw Error(rule);
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
    std::function<void(const Value&)> set;
    if constexpr (detail::is_property<std::decay_t<decltype(member)>>) {
      set = [flag, member](const Value& value) {
        try {
          set_value(member, value);
        } catch (const Error& error) {
          throw Error(flag + ": " + error.what());
        }
      };
    } else {
      set = [&member](const Value& value) { member = value; };
    }
    const CommandOption option = command.value<Value>(flag, value_of(member), set, help, field.rule);
    option.group(field.group);
    if constexpr (!std::is_same_v<Value, std::vector<std::string>>) option.take_last();
  });
}

/// Makes the options that name files and folders absolute paths, so that a run can be resumed and evaluated
/// from another folder.
template <class Options>
void make_absolute(Options& options) {
  for_each_field(options, [](const Field& field, auto&& member) {
    using Member = std::decay_t<decltype(member)>;
    const auto change = [](std::string& path) {
      if (!path.empty()) path = std::filesystem::absolute(path).string();
    };
    if (!field.is_path) return;
    if constexpr (std::is_same_v<Member, std::string>) change(member);
    if constexpr (std::is_same_v<Member, std::vector<std::string>>)
      std::for_each(member.begin(), member.end(), change);
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

/// The options in the config.json of a run. Throws: CheckpointError
template <class Options>
Options options_of(const RunFolder& folder) {
  try {
    return folder.config().at("training").template get<Options>();
  } catch (const CheckpointError& error) {
    throw CheckpointError(folder.file("config.json") + ": " + error.what());
  } catch (const Json::exception& error) {
    throw CheckpointError(folder.file("config.json") + ": is not of this program: " + reason_of(error));
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
