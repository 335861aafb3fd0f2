#pragma once

#include <tapeformer/autograd/error.h>

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tapeformer {

/// A condition on a number, with the words of its error message.
struct NumberRule {
  const char* words;
  bool (*holds)(double number);
};
inline constexpr NumberRule kAnyNumber{"", [](double) { return true; }};
inline constexpr NumberRule kPositive{"must be positive", [](double x) { return x > 0 && x - x == 0; }};
inline constexpr NumberRule kNotNegative{"must not be negative", [](double x) { return x >= 0; }};
inline constexpr NumberRule kShare{"must be from 0 to 1", [](double x) { return x >= 0 && x <= 1; }};
inline constexpr NumberRule kPositiveShare{"must be above 0 and at most 1",
                                           [](double x) { return x > 0 && x <= 1; }};
inline constexpr NumberRule kProperShare{"must be above 0 and below 1",
                                         [](double x) { return x > 0 && x < 1; }};
inline constexpr NumberRule kBelowOne{"must be in [0, 1)", [](double x) { return x >= 0 && x < 1; }};
/// Sizes end where the product of two is still an Index.
inline constexpr NumberRule kSize{"must be from 0 to 2147483647",
                                  [](double x) { return x >= 0 && x <= 0x7fffffff; }};
inline constexpr NumberRule kPositiveSize{"must be from 1 to 2147483647",
                                          [](double x) { return x >= 1 && x <= 0x7fffffff; }};

inline constexpr const char* kFirstVersion = "0.1.0";

struct Field {
  const char* name;                   ///< in files; the option is --name, with dashes
  const char* help = nullptr;         ///< of the option; without it the field is in files alone
  NumberRule rule = kAnyNumber;       ///< of a number
  const char* group = "";             ///< the heading of its option in --help
  const char* since = kFirstVersion;  ///< the version that brought it
  bool is_path = false;               ///< a text that names a file or folder, or a list of these
};

/// Receives the fields that a configuration describes.
template <class F>
struct FieldVisitor {
  const F& f;
  const char* group = "";

  template <class Member>
  void operator()(const char* name, Member&& member, const char* help, NumberRule rule = kAnyNumber,
                  const char* since = kFirstVersion) const {
    f(Field{name, help, rule, group, since}, member);
  }
  /// A field of files, which no program has an option for.
  template <class Member>
  void operator()(const char* name, Member&& member, NumberRule rule = kAnyNumber,
                  const char* since = kFirstVersion) const {
    if (*group == '\0') f(Field{name, nullptr, rule, "", since}, member);
  }
  template <class Member>
  void path(const char* name, Member&& member, const char* help, const char* since = kFirstVersion) const {
    f(Field{name, help, kAnyNumber, group, since, true}, member);
  }
  /// For the options of a program.
  FieldVisitor in_group(const char* heading) const { return {f, heading}; }
};

/// Calls f(field, member) for each field of a configuration, which describes them once, in
///   template <class Self, class F> static void for_each(Self& c, const F& field)
/// by calls like field("heads", c.heads, "H, attention heads", kPositiveSize). JSON, command line, checks and
/// help follow. A member's initialiser is its default.
template <class Config, class F>
void for_each_field(Config& config, const F& f) {
  Config::for_each(config, FieldVisitor<F>{f});
}

/// Stands for a member whose written value differs from the stored one. get() returns the written value, or
/// an empty optional to write nothing; set(value) is a generic lambda, so that it compiles for a constant
/// configuration too.
template <class Get, class Set>
struct Property {
  Get get;
  Set set;
};
template <class Get, class Set>
Property(Get, Set) -> Property<Get, Set>;

/// An enumeration, by its name. from(text) throws an Error that lists the names there are.
template <class Member, class Kind>
auto named(Member& member, const char* (*name)(Kind), Kind (*from)(const std::string&)) {
  return Property{[&member, name] { return std::string(name(member)); },
                  [&member, from](const auto& text) { member = from(text); }};
}

namespace detail {
template <class T>
inline constexpr bool is_property = false;
template <class Get, class Set>
inline constexpr bool is_property<Property<Get, Set>> = true;

template <class T>
struct Unwrapped {
  using Type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
};
}  // namespace detail

template <class Member>
decltype(auto) value_of(const Member& member) {
  if constexpr (detail::is_property<Member>) {
    return member.get();
  } else {
    return (member);
  }
}

template <class Member, class Value>
void set_value(Member& member, const Value& value) {
  if constexpr (detail::is_property<std::decay_t<Member>>) {
    member.set(value);
  } else {
    member = value;
  }
}

/// The type of a field's value, of an optional one that which it holds.
template <class Member>
using FieldValue = typename detail::Unwrapped<
    std::decay_t<decltype(value_of(std::declval<const std::decay_t<Member>&>()))>>::Type;

/// False for an optional field without a value.
template <class Member>
bool is_set(const Member& member) {
  if constexpr (std::is_same_v<std::decay_t<decltype(value_of(member))>, FieldValue<Member>>) {
    return true;
  } else {
    return value_of(member).has_value();
  }
}

/// What a field holds, as messages and tables call it.
template <class Value>
constexpr const char* type_text() {
  if constexpr (std::is_same_v<Value, bool>) return "true or false";
  if constexpr (std::is_same_v<Value, std::string>) return "a string";
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) return "a list of strings";
  if constexpr (std::is_floating_point_v<Value>) return "a number";
  return std::is_signed_v<Value> ? "a whole number" : "a whole number, not negative";
}

/// A value as messages and tables show it; "none" for an optional one that is not set.
template <class Value>
std::string value_text(const Value& value) {
  if constexpr (!std::is_same_v<Value, typename detail::Unwrapped<Value>::Type>) {
    return value ? value_text(*value) : "none";
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    std::string text;
    for (const std::string& part : value) text += (text.empty() ? "" : ", ") + part;
    return text;
  } else {
    std::ostringstream text;  // to_string() writes tiny numbers as 0
    text << std::boolalpha << value;
    return text.str();
  }
}

/// Throws: Error "NAME RULE; got VALUE" if a number does not keep the field's rule
template <class Value>
void check_rule(const std::string& name, const Field& field, const Value& value) {
  if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    if (!field.rule.holds(static_cast<double>(value)))
      throw Error(name + " " + field.rule.words + "; got " + value_text(value));
  } else if constexpr (!std::is_same_v<Value, typename detail::Unwrapped<Value>::Type>) {
    if (value) check_rule(name, field, *value);
  }
}

/// Checks every number of a configuration. Throws: Error "[op] NAME RULE; got VALUE"
template <class Config>
void check_fields(const std::string& op, const Config& config) {
  for_each_field(config, [&](const Field& field, const auto& member) {
    check_rule("[" + op + "] " + field.name, field, value_of(member));
  });
}

}  // namespace tapeformer
