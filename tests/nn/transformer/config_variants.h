#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/attention_kind.h>

#include <functional>
#include <vector>

namespace tapeformer {

/// The names that a string may have; empty for any.
inline std::vector<std::string> names_for(const ConfigField& field) {
  std::vector<std::string> names = field.choices();
  if (field.name == "attention" || field.name == "full_attention")
    for (const AttentionKind& kind : attention_kinds()) names.push_back(kind.name);
  return names;
}

/// The values with which variants_of() tries a field: the opposite of a switch, 2 for 0 or the double of any
/// other number, each other name; nothing for other types.
inline std::vector<FieldValue> other_values(const ConfigField& field) {
  const std::optional<FieldValue> value = field.value();
  if (!value) return {};
  if (const bool* on = std::get_if<bool>(&*value)) return {!*on};
  if (const double* x = std::get_if<double>(&*value)) return {*x == 0 ? 2 : 2 * *x};
  if (const Index* n = std::get_if<Index>(&*value)) return {*n == 0 ? 2 : 2 * *n};
  std::vector<FieldValue> others;
  for (const std::string& name : names_for(field))
    if (FieldValue(name) != *value) others.emplace_back(name);
  return others;
}

/// A configuration of a model, and what distinguishes it.
template <class Config>
struct ConfigVariant {
  std::string name;  ///< "norm=rms"; empty for the configuration itself
  Config config;
};

/// `config`, and every usable configuration that differs from it in one field, see other_values(): those of
/// later versions too. Those for which `is_chosen` is false are not made.
template <class Config>
std::vector<ConfigVariant<Config>> variants_of(
    const Config& config, const std::function<bool()>& is_chosen = [] { return true; }) {
  std::vector<ConfigVariant<Config>> variants{{"", config}};
  const FieldList given = fields_of(config);
  for (std::size_t i = 0; i < given.size(); ++i) {
    for (const FieldValue& other : other_values(given[i])) {
      if (!is_chosen()) continue;
      ConfigVariant<Config> variant{given[i].name + "=" + value_text(other), config};
      try {
        fields_of(variant.config)[i].set(other);
        variant.config.check();
        variants.push_back(std::move(variant));
      } catch (const Error&) {  // it does not fit the other fields
      }
    }
  }
  return variants;
}

}  // namespace tapeformer
