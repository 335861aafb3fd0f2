#pragma once

#include <tapeformer/autograd/shape.h>
#include <tapeformer/autograd/text/config_field.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

// Configurations as JSON, field by field; for sources only.
namespace tapeformer {

/// Throws: Error naming a field of another type or one that does not keep its rule
template <class Value>
void read_field(const nlohmann::ordered_json& json, const Field& field, Value& value) {
  bool fits = false;
  if constexpr (std::is_same_v<Value, bool>) {
    fits = json.is_boolean();
  } else if constexpr (std::is_same_v<Value, std::string>) {
    fits = json.is_string();
  } else if constexpr (std::is_same_v<Value, double>) {
    fits = json.is_number();
  } else if constexpr (std::is_same_v<Value, Index>) {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
    fits = json.is_number_integer() && (!json.is_number_unsigned() || json.get<std::uint64_t>() <= most);
  } else if constexpr (std::is_same_v<Value, std::uint64_t>) {
    fits = json.is_number_unsigned();
  } else {
    static_assert(std::is_same_v<Value, std::vector<std::string>>);
    fits =
        json.is_array() && std::all_of(json.begin(), json.end(), [](const auto& e) { return e.is_string(); });
  }
  if (!fits)
    throw Error(std::string(field.name) + " must be " + type_text<Value>() + "; got " +
                json.dump(-1, ' ', true));
  value = json.get<Value>();
  check_rule(field.name, field, value);
}

template <class Config>
void write_fields(nlohmann::ordered_json& json, const Config& config) {
  for_each_field(config, [&](const Field& field, const auto& member) {
    const auto& value = value_of(member);
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, FieldValue<decltype(member)>>) {
      json[field.name] = value;
    } else {
      if (value) json[field.name] = *value;
    }
  });
}

/// A missing field keeps its default. `beside` names keys of the same object that belong to others.
/// Throws: Error that names an unusable or unknown field
template <class Config>
void read_fields(const nlohmann::ordered_json& json, Config& config,
                 std::initializer_list<const char*> beside = {}) {
  if (!json.is_object()) throw Error("it must be an object; got " + json.dump(-1, ' ', true));
  std::vector<std::string> known(beside.begin(), beside.end());
  for_each_field(config, [&](const Field& field, auto&& member) {
    known.emplace_back(field.name);
    const auto found = json.find(field.name);
    if (found == json.end()) return;
    FieldValue<decltype(member)> value{};
    using Member = std::decay_t<decltype(member)>;
    if constexpr (detail::is_property<Member> && std::is_same_v<decltype(value), std::string>) {
      // A name may stand where older files have a flag.
      if (found->is_boolean()) return set_value(member, std::string(found->get<bool>() ? "true" : "false"));
    }
    read_field(*found, field, value);
    set_value(member, value);
  });
  for (const auto& [name, value] : json.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error("it has a field that this version does not know: " + name);
  }
}

}  // namespace tapeformer
