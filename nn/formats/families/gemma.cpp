#include <tapeformer/nn/formats/families/families.h>

#include <cmath>

namespace tapeformer {
namespace {

/// The whole number n for which the scale of scores is 1 / sqrt(n); 0 if there is none.
Index whole_number(double score_scale) {
  const double n = std::round(1 / (score_scale * score_scale));
  return n < 1e9 && 1 / std::sqrt(n) == score_scale ? static_cast<Index>(n) : 0;
}

/// Fields that Gemma 2 and 3 have in common: activations, norms, the scales of embeddings and scores.
void describe_gemma(ConfigMap& map) {
  map.activation("hidden_activation", "gelu_pytorch_tanh", true);
  map.fixed("embedding_scale", 0.0);
  map.fixed("sublayer_norms", std::string("both"));
  map.fixed("feed_forward_bias", false);
  map.demand("use_bidirectional_attention", false);
  // An older name, which transformers does not read either, and how it keeps keys and values.
  map.ignore({"hidden_act", "cache_implementation"});
  map.has({"score_scale"});
  double& scale = map.model.attention.score_scale;
  if (map.reads) scale = 1 / std::sqrt(map.reads->number("query_pre_attn_scalar", 256));
  if (map.writes) (*map.writes)["query_pre_attn_scalar"] = whole_number(scale);
  if (map.fits && whole_number(scale) == 0)
    scale = 1 / std::sqrt(static_cast<double>(head_width_of(map.model)));
}

/// Llama's names and norms of sublayers' outputs, with gains that are stored less 1.
TensorNames gemma_names() {
  TensorNames names = llama_names("input_layernorm", "pre_feedforward_layernorm");
  names.form = kGainsLessOne;
  return names;
}

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

Family gemma2_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 8192, 1e-6, 4, 256, true);
    describe_gemma(map);
    describe_softcap(map, "attn_logit_softcapping", "softcap", map.model.attention.softcap, 50);
    describe_softcap(map, "final_logit_softcapping", "logit_softcap", map.model.logit_softcap, 30);
    describe_biases(map);
    describe_window(map, 4096);
    describe_layer_types(map, [](Index layer) { return layer % 2 == 0; });
    describe_rotations(map);
  };
  return {"gemma2", "Gemma 2", "Gemma2ForCausalLM", describe, gemma_names()};
}

Family gemma3_family() {
  return {"gemma3_text", "Gemma 3 (text)", "Gemma3ForCausalLM", describe_gemma3, gemma_names()};
}

}  // namespace tapeformer
