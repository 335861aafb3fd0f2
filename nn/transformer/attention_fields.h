#pragma once

#include <tapeformer/autograd/text/config_field.h>
#include <tapeformer/nn/attention/attention_kind.h>

namespace tapeformer {

inline const char* rotary_layout_name(RotaryLayout layout) {
  return layout == RotaryLayout::interleaved ? "interleaved" : "half_split";
}
inline RotaryLayout rotary_layout(const std::string& name) {
  for (const RotaryLayout layout : {RotaryLayout::interleaved, RotaryLayout::half_split})
    if (name == rotary_layout_name(layout)) return layout;
  throw Error("rotary_layout must be interleaved or half_split; got " + name);
}

/// The fields of attention layers that every model has. Its kinds are those that can do all of `can`.
template <class Attention, class F>
void for_each_attention_field(Attention& c, const F& field, unsigned can = 0) {
  std::string kinds;
  for (const AttentionKind& kind : attention_kinds())
    if ((kind.can & can) == can) kinds += (kinds.empty() ? "" : ", ") + kind.name + " (" + kind.title + ")";
  field("attention",
        Property{[&c] { return c.kind; }, [&c](const auto& name) { c.kind = attention_kind(name).name; }},
        kinds.c_str());
  field("heads", c.heads, "H, attention heads", kPositiveSize);
  field("groups", c.groups, "G, heads of keys and values with gqa; 0 for half of the heads", kSize);
  field("latent_width", c.latent_width, "width of mla's compressed keys and values; 0 for C / 2", kSize);
  field("query_latent_width", c.query_latent_width, "width of mla's compressed queries; 0 for none", kSize);
  field("rotary_width", c.rotary_width, "width of mla's rotary keys; 0 for half of a head", kSize);
  field("rotary_base", c.rotations.base, "base of the rotary frequencies", kPositive);
  field("rotary_layout", named(c.rotations.layout, rotary_layout_name, rotary_layout));
  field("rotary_components", c.rotations.width, kSize);
  field("rotary_max_positions", c.rotations.max_positions, kSize);
  field("rotary_factor", c.rotations.factor, kPositive);
  field("rotary_original_context", c.rotations.original_context, kSize);
  field("rotary_low_frequency", c.rotations.low_frequency);
  field("rotary_high_frequency", c.rotations.high_frequency);
}

}  // namespace tapeformer
