#pragma once

#include <tapeformer/examples/shared/command_line.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tapeformer {

// A struct of options has a static member function template
//   template <class Self, class F> static void for_each(Self& options, const F& f)
// that names every option once, f(group, name, field, help). Command line and JSON follow from it.

/// "--learning-rate" of learning_rate.
inline std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

template <class>
inline constexpr bool is_list = false;
template <class Element>
inline constexpr bool is_list<std::vector<Element>> = true;

/// A flag for every option of type bool, and an option with a value for the others, or with any number for
/// lists.
template <class Options>
void add_options(const Command& command, Options& options) {
  Options::for_each(options, [&](const char* group, const char* name, auto& field, const char* help) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, bool>) {
      command.flag(flag_of(name), field, std::string(help) + (field ? " [on]" : "")).group(group);
    } else if constexpr (is_list<Field>) {
      command.option(flag_of(name), field, help).group(group);
    } else if constexpr (std::is_arithmetic_v<Field>) {
      command.number(flag_of(name), field, help).group(group).show_default().take_last();
    } else {
      command.option(flag_of(name), field, help).group(group).show_default().take_last();
    }
  });
}

template <class Options>
void write_options(nlohmann::ordered_json& json, const Options& options) {
  Options::for_each(
      options, [&](const char*, const char* name, const auto& field, const char*) { json[name] = field; });
}

/// `later` names the options that older runs did not have: they may be missing, and stay as they are.
/// Throws: nlohmann::json::exception if another one is missing or of another type
template <class Options>
void read_options(const nlohmann::ordered_json& json, Options& options,
                  std::initializer_list<std::string_view> later) {
  Options::for_each(options, [&](const char*, const char* name, auto& field, const char*) {
    const bool may_be_missing = std::find(later.begin(), later.end(), name) != later.end();
    if (!may_be_missing || json.contains(name)) json.at(name).get_to(field);
  });
}

}  // namespace tapeformer
