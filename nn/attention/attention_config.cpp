#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/heads.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace tapeformer {
namespace {

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(Index value) { return std::to_string(value); }
std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

/// All fields but kind, heads and rotations, as texts.
std::vector<std::pair<const char*, std::string>> texts_of(const AttentionConfig& c) {
  return {{"groups", text_of(c.groups)},
          {"width", text_of(c.width)},
          {"memory_width", text_of(c.memory_width)},
          {"value_memory_width", text_of(c.value_memory_width)},
          {"output_width", text_of(c.output_width)},
          {"key_width", text_of(c.key_width)},
          {"value_width", text_of(c.value_width)},
          {"latent_width", text_of(c.latent_width)},
          {"query_latent_width", text_of(c.query_latent_width)},
          {"rotary_width", text_of(c.rotary_width)},
          {"dropout", text_of(c.dropout)},
          {"output_dropout", text_of(c.output_dropout)},
          {"bias", text_of(c.bias)},
          {"output_bias", c.output_bias ? text_of(*c.output_bias) : "bias"},
          {"cross", text_of(c.cross)},
          {"rotary", text_of(c.rotary)},
          {"packed", text_of(c.packed)},
          {"sequence_first", text_of(c.sequence_first)},
          {"norm", text_of(c.norm)},
          {"form", text_of(static_cast<Index>(c.form))}};
}

/// A field that is not at its default, and the values as texts.
struct ChangedField {
  std::string name, value, by_default;
};

/// Fields that are not at their defaults, but for those in `used`.
std::vector<ChangedField> unused_fields(const AttentionConfig& config, const std::vector<std::string>& used) {
  static const auto defaults = texts_of({});
  const auto values = texts_of(config);
  std::vector<ChangedField> fields;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& [name, value] = values[i];
    if (value == defaults[i].second || std::find(used.begin(), used.end(), name) != used.end()) continue;
    fields.push_back({name, value, defaults[i].second});
  }
  return fields;
}

/// Throws: Error naming a field that `kind` has no use for, and the kinds that have
void check_fields(const AttentionKind& kind, const AttentionConfig& config) {
  std::vector<std::string> used = {"width",   "memory_width", "output_width", "key_width", "value_width",
                                   "dropout", "bias",         "cross",        "rotary",    "packed"};
  used.insert(used.end(), kind.fields.begin(), kind.fields.end());
  for (const ChangedField& field : unused_fields(config, used)) {
    const std::string kinds = kind_names([&](const AttentionKind& other) { return other.uses(field.name); });
    throw Error("[attention] " + field.name + " is for " + kinds + "; got attention=" + kind.name + ", " +
                field.name + "=" + field.value + "; try " + field.name + "=" + field.by_default);
  }
}

}  // namespace

void check_embedded(const char* model, const AttentionConfig& config, const std::vector<std::string>& kept) {
  for (const ChangedField& field : unused_fields(config, kept)) {
    throw Error(std::string("[") + model + "] the model decides its attention's " + field.name + "; got " +
                field.name + "=" + field.value + "; try " + field.name + "=" + field.by_default);
  }
}

AttentionConfig AttentionConfig::resolved() const {
  const AttentionKind& own = attention_kind(kind);
  const std::string got = "attention=" + kind + ", ";
  const auto require = [&](bool holds, const std::string& rule, const std::string& rest) {
    if (!holds) throw Error("[attention] " + rule + "; got " + got + rest);
  };
  check_sizes("attention",
              {{"groups", groups},
               {"memory_width", memory_width},
               {"value_memory_width", value_memory_width},
               {"latent_width", latent_width},
               {"query_latent_width", query_latent_width},
               {"rotary_width", rotary_width}},
              got);
  check_fields(own, *this);
  const PackedHeads sizes =
      resolved_heads("attention", width, output_width, {heads, key_heads(), key_width, value_width}, got);
  AttentionConfig full = *this;
  full.key_width = sizes.key_width;
  full.value_width = sizes.value_width;
  full.memory_width = or_else(memory_width, width);
  full.value_memory_width = or_else(value_memory_width, full.memory_width);
  full.output_width = or_else(output_width, width);
  full.output_bias = output_bias.value_or(bias);
  full.rotary = rotary && !cross;
  if (own.complete) own.complete(full);
  if (!full.rotary) return full;
  require(own.can & kCanRotate, own.title + " attention cannot turn queries and keys by rotary positions",
          "rotary positions; try sinusoidal or learned ones");
  const Index turned = or_else(rotations.width, full.key_width);
  require(turned % 2 == 0 && rotations.base > 0 && rotations.factor > 0,
          "rotary positions turn pairs of a head's components, with a positive base and factor",
          "components=" + std::to_string(turned) + ", base=" + std::to_string(rotations.base) +
              ", factor=" + std::to_string(rotations.factor) + "; try an even width of the heads");
  return full;
}

AttentionConfig AttentionConfig::resolved_as(const char* name) const {
  AttentionConfig own = *this;
  own.kind = name;
  return own.resolved();
}

}  // namespace tapeformer
