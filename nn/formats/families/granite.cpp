#include <tapeformer/nn/formats/families/families.h>

#include <cmath>

namespace tapeformer {
namespace {

/// A factor that may be 0 in our configuration, which means `usual`.
void describe_factor(ConfigMap& map, const char* theirs, const char* ours, double& factor, double usual) {
  map.has({ours});
  if (map.reads) factor = map.reads->number(theirs, 1);
  if (map.fits && factor == 0) factor = usual;
  if (map.writes) (*map.writes)[theirs] = factor;
}

void describe_granite(ConfigMap& map) {
  describe_llama_base(map, 2048);
  map.activation("hidden_act", "silu", true);
  describe_biases(map);
  map.field("mlp_bias", "feed_forward_bias", false);
  describe_rotations(map);
  DecoderOnlyConfig& model = map.model;
  const auto C = static_cast<double>(model.width), D = static_cast<double>(head_width_of(model));
  describe_factor(map, "embedding_multiplier", "embedding_scale", model.embedding_scale, std::sqrt(C));
  describe_factor(map, "attention_multiplier", "score_scale", model.attention.score_scale, 1 / std::sqrt(D));
  map.field("residual_multiplier", "residual_scale", 1.0);
  map.has({"head_scale"});
  if (map.reads) model.head_scale = 1 / map.reads->number("logits_scaling", 1);
  if (map.writes) (*map.writes)["logits_scaling"] = 1 / model.head_scale;
}

}  // namespace

Family granite_family() {
  return {"granite", "Granite", "GraniteForCausalLM", describe_granite, llama_names()};
}

}  // namespace tapeformer
