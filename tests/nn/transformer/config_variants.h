#pragma once

#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

namespace tapeformer {

/// The names that a refusal lists: "the kind must be sinusoidal, learned or rotary; got ?".
inline std::vector<std::string> listed_names(const std::string& refusal) {
  const std::string rule = "must be ";
  const std::size_t end = refusal.rfind("; got"), at = refusal.rfind(rule, end);
  if (at == std::string::npos || end == std::string::npos) return {};
  std::string list = refusal.substr(at + rule.size(), end - at - rule.size());
  if (list.find("one of ") == 0) list = list.substr(7);
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(", "), list.find(" or "));
    names.push_back(list.substr(0, comma));
    list = comma == std::string::npos ? "" : list.substr(comma + (list[comma] == ',' ? 2 : 4));
  }
  return names;
}

/// The opposite of a switch; 2 for 0, or the double of any other number; nothing for other types.
inline std::vector<nlohmann::ordered_json> other_values(const nlohmann::ordered_json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (value.is_number_float()) return {value == 0 ? 2.0 : 2 * value.get<double>()};
  if (value.is_number()) return {value == 0 ? Index{2} : 2 * value.get<Index>()};
  return {};
}

/// A configuration of a model, and what distinguishes it.
template <class Config>
struct ConfigVariant {
  std::string name;  ///< "norm=rms"; empty for the configuration itself
  Config config;
};

/// `config`, and every usable configuration that differs from it in one field: see other_values(); in place
/// of a name there is each other one. Fields that are added later are among them.
template <class Config>
std::vector<ConfigVariant<Config>> variants_of(const Config& config) {
  std::vector<ConfigVariant<Config>> variants{{"", config}};
  nlohmann::ordered_json fields = parse_json(config.to_json());
  const auto set = [&](const std::string& name, const nlohmann::ordered_json& value) {
    fields[name] = value;
    return Config::from_json(fields.dump());
  };
  const auto given = fields;
  for (const auto& field : given.items()) {
    const std::string& name = field.key();
    if (name == "model") continue;
    std::vector<nlohmann::ordered_json> others = other_values(field.value());
    if (field.value().is_string()) {
      try {
        set(name, "?");
      } catch (const Error& refusal) {
        for (const std::string& other : listed_names(refusal.what()))
          if (field.value() != other) others.emplace_back(other);
      }
    }
    for (const nlohmann::ordered_json& other : others) {
      try {
        variants.push_back({name + "=" + other.dump(), set(name, other)});
      } catch (const Error&) {  // it does not fit the other fields
      }
    }
    fields[name] = field.value();
  }
  return variants;
}

}  // namespace tapeformer
