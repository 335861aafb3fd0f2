#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/shape.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tapeformer {

/// A condition on a number, with the words of its error message.
struct NumberRule {
  const char* words;
  bool (*holds)(double number);
};
inline constexpr NumberRule kAnyNumber{"", [](double) { return true; }};
inline constexpr NumberRule kPositive{"must be positive", [](double x) { return x > 0 && x - x == 0; }};
inline constexpr NumberRule kNotNegative{"must not be negative",
                                         [](double x) { return x == 0 || kPositive.holds(x); }};
inline constexpr NumberRule kShare{"must be from 0 to 1", [](double x) { return x >= 0 && x <= 1; }};
inline constexpr NumberRule kPositiveShare{"must be above 0 and at most 1",
                                           [](double x) { return x > 0 && x <= 1; }};
inline constexpr NumberRule kProperShare{"must be above 0 and below 1",
                                         [](double x) { return x > 0 && x < 1; }};
inline constexpr NumberRule kBelowOne{"must be in [0, 1)", [](double x) { return x >= 0 && x < 1; }};
/// Sizes are whole, and end where the product of two is still an Index.
inline constexpr NumberRule kSize{"must be from 0 to 2147483647",
                                  [](double x) { return x >= 0 && x <= 0x7fffffff && x == std::floor(x); }};
inline constexpr NumberRule kPositiveSize{"must be from 1 to 2147483647",
                                          [](double x) { return x >= 1 && kSize.holds(x); }};

struct Field {
  std::string name;              ///< in files; the option is --name, with dashes
  std::string help = {};         ///< of the option; without help the field is only in files
  NumberRule rule = kAnyNumber;  ///< of a number
  const char* group = "";        ///< the heading of its option in --help
  const char* part = "";         ///< a heading within the group
  bool is_path = false;          ///< a path of a file or folder, or a list of these
  bool follows_kind = false;     ///< its default depends on the kind in another field
};

using FieldValue = std::variant<bool, Index, std::uint64_t, double, std::string, std::vector<std::string>>;

namespace detail {
template <class T>
struct Unwrapped {
  using Type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
};
}  // namespace detail

/// Reads and writes a value that is stored in another form. get() returns a type of FieldValue, or an
/// optional one, which is empty where there is nothing to write; set(value) takes what get() returns.
struct Property {
  FieldValue zero;                        ///< of its type
  std::vector<std::string> choices = {};  ///< of a string, the values that it may have; empty for any
  std::function<std::optional<FieldValue>()> get;
  std::function<void(const std::optional<FieldValue>&)> set;

  template <class Get, class Set>
  Property(Get get_value, Set set_value);
};

template <class Get, class Set>
Property::Property(Get get_value, Set set_value) {
  using Member = decltype(get_value());
  using Value = typename detail::Unwrapped<Member>::Type;
  zero = Value();
  get = [get_value]() -> std::optional<FieldValue> { return get_value(); };
  set = [set_value](const std::optional<FieldValue>& value) {
    if (value) {
      set_value(std::get<Value>(*value));
    } else if constexpr (!std::is_same_v<Member, Value>) {
      set_value(Member());
    }
  };
}

/// A string that must be one of `choices`.
Property one_of(std::string& member, std::vector<std::string> choices);

/// An enumeration, by its name: see names.h.
template <class Kind>
Property named(Kind& member) {
  Property property([&member] { return std::string(name_of(member)); },
                    [&member](const std::string& name) { member = kind_named<Kind>(name); });
  property.choices = all_names(kNames<Kind>);
  return property;
}

/// The member of a configuration that holds a field's value, or a Property in its place.
struct FieldMember {
  std::variant<bool*, Index*, std::uint64_t*, double*, std::string*, std::vector<std::string>*,
               std::optional<bool>*, const Property*>
      pointer;

  template <class Member>
  FieldMember(Member& member) : pointer(&member) {}
  FieldMember(const Property& property) : pointer(&property) {}
};

/// A field of one configuration, which must outlive it.
class ConfigField : public Field {
 public:
  ConfigField(Field field, const FieldMember& member);
  /// The value; none for an optional field that is not set.
  std::optional<FieldValue> value() const { return property_.get(); }
  /// Sets a value of the field's type; none unsets an optional field and leaves others as they are.
  void set(const std::optional<FieldValue>& value) { property_.set(value); }
  /// The zero of the field's type.
  const FieldValue& zero() const { return property_.zero; }
  /// The value in messages and tables; "none" for one that is not set.
  std::string text() const;
  /// The choices of a Property.
  const std::vector<std::string>& choices() const { return property_.choices; }
  /// The member's address; nullptr for a Property.
  const void* member() const { return member_; }

 private:
  Property property_;
  const void* member_;
};
using FieldList = std::vector<ConfigField>;

/// Collects the fields that a configuration describes.
class FieldVisitor {
 public:
  explicit FieldVisitor(FieldList& fields, const char* group = "", const char* part = "")
      : fields_(fields), group_(group), part_(part) {}

  Field& operator()(const char* name, const FieldMember& member, const char* help,
                    NumberRule rule = kAnyNumber) const;
  /// Describes a field that is only in files, without an option; a visitor of in_group() skips it.
  void operator()(const char* name, const FieldMember& member, NumberRule rule = kAnyNumber) const;
  void path(const char* name, const FieldMember& member, const char* help) const;
  /// A visitor for the options of a program under this heading.
  FieldVisitor in_group(const char* heading) const { return FieldVisitor(fields_, heading); }
  /// A visitor for options under a heading of their own within the group.
  FieldVisitor in_part(const char* heading) const { return FieldVisitor(fields_, group_, heading); }

 private:
  FieldList& fields_;
  const char *group_, *part_;
};

/// The fields of a configuration, which describes each of them once, in
///   void describe(const FieldVisitor& field)
/// by calls like field("heads", heads, "H, attention heads", kPositiveSize). JSON, command line, checks and
/// help follow from the list. A member's initialiser is its default.
template <class Config>
FieldList fields_of(Config& config) {
  FieldList fields;
  fields.reserve(128);  // most configurations have fewer, and fields are costly to move
  config.describe(FieldVisitor(fields));
  return fields;
}
/// As above, for reading only.
template <class Config>
const FieldList fields_of(const Config& config) {
  return fields_of(const_cast<Config&>(config));
}

/// The name of a field's type in messages and tables.
template <class Value>
constexpr const char* type_text() {
  if constexpr (std::is_same_v<Value, bool>) return "true or false";
  if constexpr (std::is_same_v<Value, std::string>) return "a string";
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) return "a list of strings";
  if constexpr (std::is_floating_point_v<Value>) return "a number";
  return std::is_signed_v<Value> ? "a whole number" : "a whole number, not negative";
}
const char* type_text(const ConfigField& field);

/// A value in messages and tables.
std::string value_text(const FieldValue& value);

/// Throws: Error "NAME RULE; got VALUE" for a number that violates the field's rule, or a text that is not
///         one of its choices
void check_value(const std::string& name, const ConfigField& field, const FieldValue& value);

/// Checks every value of a configuration. Throws: Error "[op] NAME RULE; got VALUE"
void check_fields(const std::string& op, const FieldList& fields);

/// A field that differs between two configurations of one type.
struct ChangedField {
  const ConfigField *now, *usual;
};
/// The fields that are set in `now` and differ in `usual`. Both must outlive the result.
std::vector<ChangedField> changed_fields(const FieldList& now, const FieldList& usual);

}  // namespace tapeformer
