#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/families/families.h>

#include <cmath>

namespace tapeformer {
namespace {

/// Rotations without scaling of a share of each head's components, which newer files have in rope_parameters.
void describe_partial_rotations(ConfigMap& map) {
  map.field("rope_theta", "rotary_base", 1e4);
  map.fixed("rotary_layout", std::string("half_split"));
  map.has({"rotary_components"});
  const char* const name = "partial_rotary_factor";
  RotaryConfig& rotations = map.model.attention.rotations;
  const Index head_width = head_width_of(map.model);
  const auto D = static_cast<double>(head_width);
  if (map.reads) {
    double share = map.reads->number(name, 1);
    for (const char* const place : {"rope_scaling", "rope_parameters"}) {
      if (!map.reads->has(place)) continue;
      JsonFields file = map.reads->object(place);
      for (const char* const type : {"type", "rope_type"}) file.demand(type, "default");
      rotations.base = file.number("rope_theta", rotations.base);
      share = file.number(name, share);
      file.finish();
    }
    const Index width = share > 1 ? 0 : static_cast<Index>(D * share);
    if (width == 0 || width % 2 != 0)
      map.reads->fail(name, format("must rotate an even number of a head's {} components; got {}", D, share));
    rotations.width = width == head_width ? 0 : width;
  }
  if (map.fits && (rotations.width % 2 != 0 || rotations.width > head_width)) rotations.width = 0;
  map.fixed("rotary_reversed", false);
  if (!map.writes) return;
  const auto width = static_cast<double>(rotations.width > 0 ? rotations.width : head_width);
  const double share = width / D;  // whose product with D is rounded down
  (*map.writes)[name] = std::floor(D * share) < width ? std::nextafter(share, 1) : share;
}

void describe_phi3(ConfigMap& map) {
  describe_sizes(map, 4096);
  map.activation("hidden_act", "silu", true);
  map.field("rms_norm_eps", "epsilon", 1e-5);
  map.demand("attention_bias", false);
  fix_biases(map, false, false);
  map.field("attention_dropout", "attention_dropout", 0.0);
  map.field("resid_pdrop", "residual_dropout", 0.0);
  map.fixed("feed_forward_bias", false);
  describe_window(map);
  describe_partial_rotations(map);
  map.field("tie_word_embeddings", "tie_head", false);
  // Transformers reads the second only with rope_type longrope, and the first never.
  map.ignore({"embd_pdrop", "original_max_position_embeddings"});
}

}  // namespace

Family phi3_family() {
  return {
      "phi3", "Phi 3", "Phi3ForCausalLM", describe_phi3,
      renamed(llama_names(), {{"layers.*.attention.query_key_value", {"model.layers.*.self_attn.qkv_proj"}},
                              {"layers.*.feed_forward.up", {"model.layers.*.mlp.gate_up_proj"}}})};
}

}  // namespace tapeformer
