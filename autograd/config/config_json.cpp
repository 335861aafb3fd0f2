#include <tapeformer/autograd/config/config_json.h>
#include <tapeformer/autograd/config/retired_fields.h>
#include <tapeformer/autograd/error.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace tapeformer {
namespace {

bool fits(const nlohmann::ordered_json& json, bool) { return json.is_boolean(); }
bool fits(const nlohmann::ordered_json& json, const std::string&) { return json.is_string(); }
bool fits(const nlohmann::ordered_json& json, double) { return json.is_number(); }
bool fits(const nlohmann::ordered_json& json, Index) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  return json.is_number_integer() && (!json.is_number_unsigned() || json.get<std::uint64_t>() <= most);
}
bool fits(const nlohmann::ordered_json& json, std::uint64_t) { return json.is_number_unsigned(); }
bool fits(const nlohmann::ordered_json& json, const std::vector<std::string>&) {
  return json.is_array() &&
         std::all_of(json.begin(), json.end(), [](const auto& element) { return element.is_string(); });
}

}  // namespace

void read_field(const nlohmann::ordered_json& json, ConfigField& field) {
  const auto read = [&](const auto& zero) -> FieldValue {
    if (fits(json, zero)) return json.get<std::decay_t<decltype(zero)>>();
    throw Error(field.name + " must be " + type_text(field) + "; got " + json.dump(-1, ' ', true));
  };
  const FieldValue value = std::visit(read, field.zero());
  check_value(field.name, field, value);
  field.set(value);
}

void write_fields(nlohmann::ordered_json& json, const FieldList& fields) {
  for (const ConfigField& field : fields)
    if (const auto now = field.value()) std::visit([&](const auto& x) { json[field.name] = x; }, *now);
}

void read_fields(const nlohmann::ordered_json& json, FieldList&& fields,
                 std::initializer_list<const char*> beside) {
  if (!json.is_object()) throw Error("it must be an object; got " + json.dump(-1, ' ', true));
  std::vector<std::string> known(beside.begin(), beside.end());
  for (ConfigField& field : fields) {
    known.push_back(field.name);
    const auto found = json.find(field.name);
    if (found == json.end()) continue;
    // Older files may have a flag instead of a name: false is the first name, true the second.
    if (!field.choices().empty() && found->is_boolean()) {
      field.set(field.choices()[found->get<bool>() ? 1 : 0]);
    } else {
      read_field(*found, field);
    }
  }
  for (const auto& [name, value] : json.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end() && !is_retired_field(name, value))
      throw Error("it has a field that this version does not know: " + name);
  }
}

}  // namespace tapeformer
