#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// The rotary base of layers with a window, whose positions are not scaled.
void describe_window_base(ConfigMap& map) {
  map.has({"window_rotary_base"});
  double& base = map.model.window_rotary_base;
  const RotaryConfig& rotations = map.model.attention.rotations;
  const bool is_scaled = rotations.factor != 1 || rotations.original_context > 0;
  if (map.reads) base = map.reads->number("rope_local_base_freq", 1e4);
  if (map.writes) (*map.writes)["rope_local_base_freq"] = base > 0 ? base : rotations.base;
  if (map.fits && map.model.window > 0 && is_scaled && base == 0) base = rotations.base;
}

void describe_gemma3(ConfigMap& map) {
  describe_llama_base(map, 131072, 1e-6, 4, 256, true);
  describe_gemma(map);
  map.demand("attn_logit_softcapping", nullptr);  // which transformers passes over
  if (map.writes) (*map.writes)["attn_logit_softcapping"] = nullptr;
  describe_softcap(map, "final_logit_softcapping", "logit_softcap", map.model.logit_softcap, 0);
  describe_qk_norms(map, QkNorm::rms);
  describe_biases(map);
  Index period = 6;  // of layers, the last of which has no window
  if (map.reads) period = map.reads->size("sliding_window_pattern", period);
  describe_window(map, 4096);
  if (map.writes) (*map.writes)["sliding_window_pattern"] = first_layer(map.model, false) + 1;
  describe_layer_types(map, [=](Index layer) { return (layer + 1) % period != 0; });
  map.field("rope_theta", "rotary_base", 1e6);
  describe_window_base(map);
  rotate_whole_heads(map);
  describe_scaling(map, read_both_scalings);
  if (map.model.window == 0) map.model.window_rotary_base = 0;
}

}  // namespace

Family gemma3_family() {
  return {"gemma3_text", "Gemma 3 (text)", "Gemma3ForCausalLM", describe_gemma3, gemma_names()};
}

}  // namespace tapeformer
