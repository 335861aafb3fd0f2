#include <tapeformer/examples/python/src/config.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace tapeformer::python {

FieldValue field_value(const std::string& name, const FieldValue& zero, nb::handle object) {
  const auto read = [&](auto value) -> FieldValue {
    using Value = decltype(value);
    const bool is_bool = nb::isinstance<nb::bool_>(object),
               is_int = nb::isinstance<nb::int_>(object) && !is_bool;
    bool fits = is_int;
    if constexpr (std::is_same_v<Value, bool>) fits = is_bool;
    if constexpr (std::is_floating_point_v<Value>) fits = is_int || nb::isinstance<nb::float_>(object);
    if constexpr (std::is_same_v<Value, std::string>) fits = nb::isinstance<nb::str>(object);
    if constexpr (std::is_same_v<Value, std::vector<std::string>>) fits = nb::isinstance<nb::list>(object);
    if (!fits || !nb::try_cast(object, value)) {
      throw nb::type_error(
          (name + " must be " + type_text<Value>() + "; got " + nb::cast<std::string>(nb::repr(object)))
              .c_str());
    }
    return value;
  };
  return std::visit(read, zero);
}

void set_fields(const nb::dict& given, FieldList&& fields) {
  nb::dict unknown;
  unknown.update(given);
  std::string known;
  for (ConfigField& field : fields) {
    const char* const name = field.name.c_str();
    known += (known.empty() ? "" : ", ") + field.name;
    if (!given.contains(name)) continue;
    nb::del(unknown[name]);
    const nb::object object = given[name];
    if (object.is_none() && !field.value()) continue;  // the default in the signature
    const FieldValue value = field_value(field.name, field.zero(), object);
    check_value(field.name, field, value);
    field.set(value);
  }
  for (const auto& [name, value] : unknown) {
    throw nb::type_error(
        ("there is no field " + nb::cast<std::string>(name) + "; the fields are " + known).c_str());
  }
}

std::string parameter_text(const std::string& name, const FieldValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return name + ": bool = " + (*flag ? "True" : "False");
  if (const auto* text = std::get_if<std::string>(&value)) return name + ": str = '" + *text + "'";
  return name + (std::holds_alternative<double>(value) ? ": float = " : ": int = ") + value_text(value);
}

std::string parameters_text(const FieldList& fields) {
  std::string text;
  for (const ConfigField& field : fields) {
    const auto now = field.value();
    const char* const type = std::holds_alternative<bool>(field.zero()) ? "bool" : "float";
    text += ", " + (now ? parameter_text(field.name, *now) : field.name + ": " + type + " | None = None");
  }
  return text;
}

std::string help_text(const FieldList& fields) {
  std::string text;
  for (const ConfigField& field : fields)
    if (!field.help.empty()) text += "\n    " + field.name + ": " + field.help;
  return text;
}

}  // namespace tapeformer::python
