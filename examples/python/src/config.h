#pragma once

#include <tapeformer/autograd/text/config_field.h>
#include <tapeformer/examples/python/src/arrays.h>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>
#include <type_traits>

// Configurations as keyword arguments, from their tables of fields.
namespace tapeformer::python {

/// Throws: TypeError if the value is of another type
template <class Value>
Value field_value(const Field& field, nanobind::handle object) {
  namespace nb = nanobind;
  const bool is_bool = nb::isinstance<nb::bool_>(object),
             is_int = nb::isinstance<nb::int_>(object) && !is_bool;
  bool fits = is_int;
  if constexpr (std::is_same_v<Value, bool>) fits = is_bool;
  if constexpr (std::is_floating_point_v<Value>) fits = is_int || nb::isinstance<nb::float_>(object);
  if constexpr (std::is_same_v<Value, std::string>) fits = nb::isinstance<nb::str>(object);
  Value value{};
  if (!fits || !nb::try_cast(object, value)) {
    throw nb::type_error((std::string(field.name) + " must be " + type_text<Value>() + "; got " +
                          nb::cast<std::string>(nb::repr(object)))
                             .c_str());
  }
  return value;
}

/// `config` with the fields that `given` names.
/// Throws: TypeError for an unknown field or a value of another type; Error for one that breaks its rule
template <class Config>
Config config_of(const nanobind::dict& given, Config config) {
  nanobind::dict unknown;
  unknown.update(given);
  std::string known;
  for_each_field(config, [&](const Field& field, auto&& member) {
    known += (known.empty() ? "" : ", ") + std::string(field.name);
    if (!given.contains(field.name)) return;
    nanobind::del(unknown[field.name]);
    const auto value = field_value<FieldValue<decltype(member)>>(field, given[field.name]);
    check_rule(field.name, field, value);
    set_value(member, value);
  });
  for (const auto& [name, value] : unknown) {
    throw nanobind::type_error(
        ("there is no field " + nanobind::cast<std::string>(name) + "; the fields are " + known).c_str());
  }
  return config;
}

template <class Config>
nanobind::dict dict_of(const Config& config) {
  nanobind::dict fields;
  for_each_field(config, [&](const Field& field, const auto& member) {
    if (!is_set(member)) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(value_of(member))>, FieldValue<decltype(member)>>) {
      fields[field.name] = value_of(member);
    } else {
      fields[field.name] = *value_of(member);
    }
  });
  return fields;
}

/// "width: int = 0", as stubs and help() show a parameter.
template <class Value>
std::string parameter_text(const std::string& name, const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) return name + ": bool = " + (value ? "True" : "False");
  if constexpr (std::is_same_v<Value, std::string>) return name + ": str = '" + value + "'";
  return name + (std::is_floating_point_v<Value> ? ": float = " : ": int = ") + value_text(value);
}

/// ", heads: int = 1, bias: bool = True": every field.
template <class Config>
std::string parameters_text(const Config& config) {
  std::string text;
  for_each_field(config, [&](const Field& field, const auto& member) {
    using Value = FieldValue<decltype(member)>;
    const std::string name = field.name;
    if constexpr (!std::is_same_v<std::decay_t<decltype(value_of(member))>, Value>) {
      text +=
          ", " + (is_set(member) ? parameter_text(name, *value_of(member))
                                 : parameter_text(name, Value{}).substr(0, name.size() + 2) +
                                       (std::is_same_v<Value, bool> ? "bool" : "float") + " | None = None");
    } else {
      text += ", " + parameter_text(name, value_of(member));
    }
  });
  return text;
}

/// The fields that have a help line, one a line.
template <class Config>
std::string help_text(const Config& config) {
  std::string text;
  for_each_field(config, [&](const Field& field, const auto&) {
    if (field.help != nullptr) text += "\n    " + std::string(field.name) + ": " + field.help;
  });
  return text;
}

/// What every layer takes besides its configuration.
struct LayerArguments {
  std::uint64_t seed = 0;
  DType dtype = DType::f32;
  nanobind::dict fields;  ///< the rest
};
LayerArguments layer_arguments(const nanobind::kwargs& given);
inline const char* const kLayerParameters = ", seed: int = 0, dtype: str = 'f32'";
/// Throws: ValueError unless it is f32 or f64
DType parameter_type(const std::string& name);

}  // namespace tapeformer::python
