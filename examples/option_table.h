#pragma once

#include <tapeformer/autograd/error.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
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

/// What a number on the command line has to be, in the words of the message that refuses another.
struct NumberRule {
  const char* words;
  bool (*holds)(double number);
};
inline constexpr NumberRule kAnyNumber{"", [](double) { return true; }};
inline constexpr NumberRule kPositive{"must be positive", [](double x) { return x > 0; }};
inline constexpr NumberRule kNotNegative{"must not be negative", [](double x) { return x >= 0; }};
inline constexpr NumberRule kShare{"must be from 0 to 1", [](double x) { return x >= 0 && x <= 1; }};
inline constexpr NumberRule kPositiveShare{"must be above 0 and at most 1",
                                           [](double x) { return x > 0 && x <= 1; }};

/// An option with a number, read strictly: CLI11 would wrap a negative number, clamp one that is too large,
/// take nan and inf, and print bounds of 309 digits.
/// Throws: (when the command line is read) Error naming the option and what it got
template <class Number>
CLI::Option* add_number(CLI::App& app, const std::string& flag, Number& field, const std::string& help,
                        const NumberRule& rule = kAnyNumber) {
  return app.add_option(flag, field, help)->check([flag, rule](const std::string& text) -> std::string {
    Number number{};
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    const auto wide = static_cast<double>(number);
    if (error == std::errc::result_out_of_range) throw Error(flag + " is out of range; got " + text);
    if (error != std::errc() || stopped != end || !std::isfinite(wide)) {
      const char* kind = std::is_floating_point_v<Number> ? "a finite number"
                         : std::is_signed_v<Number>       ? "a whole number"
                                                          : "a whole number, not negative";
      throw Error(flag + " must be " + kind + "; got " + text);
    }
    if (!rule.holds(wide)) throw Error(flag + " " + rule.words + "; got " + text);
    return {};
  });
}

/// A flag for every option of type bool, and an option with a value for the others, or with any number for
/// lists.
template <class Options>
void add_options(CLI::App& app, Options& options) {
  Options::for_each(options, [&](const char* group, const char* name, auto& field, const char* help) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, bool>) {
      app.add_flag(flag_of(name), field, std::string(help) + (field ? " [on]" : ""))->group(group);
    } else if constexpr (is_list<Field>) {
      app.add_option(flag_of(name), field, help)->group(group);
    } else if constexpr (std::is_arithmetic_v<Field>) {
      add_number(app, flag_of(name), field, help)->group(group)->capture_default_str()->take_last();
    } else {
      app.add_option(flag_of(name), field, help)->group(group)->capture_default_str()->take_last();
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
