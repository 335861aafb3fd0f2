#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// Rotations with a scaling, which the file must name: without one transformers takes YaRN.
void describe_named_rotations(ConfigMap& map) {
  const char* const kNewer = "rope_parameters";
  if (map.reads && !map.reads->has("rope_scaling") && !map.reads->has(kNewer))
    map.reads->fail(kNewer, "is missing, which means YaRN to transformers");
  describe_rotations(map, 150000);
  if (map.writes && !map.writes->contains("rope_scaling"))
    (*map.writes)[kNewer] = {{"rope_type", "default"}, {"rope_theta", map.model.attention.rotations.base}};
}

/// The form of gated silu.
void describe_swiglu(ConfigMap& map) {
  constexpr double kUsual = 7;
  map.demand("hidden_act", "silu");
  map.fixed("activation", std::string("silu"));
  map.fixed("gated", true);
  map.field("swiglu_limit", "swiglu_limit", kUsual);
  map.field("swiglu_alpha", "swiglu_alpha", SwigluLimit().alpha);
  if (map.fits && map.model.swiglu.limit == 0) map.model.swiglu.limit = kUsual;
}

void describe_gpt_oss(ConfigMap& map) {
  describe_llama_base(map, 131072, 1e-5, 8, 64);
  describe_biases(map, true);
  map.fixed("sinks", true);
  describe_named_rotations(map);
  describe_window(map, 128);
  describe_layer_types(map, [](Index layer) { return layer % 2 == 0; });
  describe_experts(map, "num_local_experts", "num_experts", 0.001);
  map.fixed("normalized_router", true);  // its softmax is over the chosen experts, which is the same
  map.fixed("feed_forward_bias", true);
  describe_swiglu(map);
  map.demand("experts_per_token", map.model.experts.active);  // an older name
  map.ignore({"initial_context_length"});
}

TensorNames gpt_oss_names() {
  const std::string layer = "model.layers.*.", mlp = layer + "mlp.";
  const auto experts = [&](const char* ours, const char* theirs, std::size_t alternating) {
    return TensorName{
        std::string("layers.*.feed_forward.") + ours, {mlp + "experts." + theirs}, 0, {}, {}, alternating};
  };
  return with_names(llama_names(), "layers.*.feed_forward.up",
                    {{"layers.*.attention.sinks", {layer + "self_attn.sinks"}},
                     {"layers.*.feed_forward.router", {mlp + "router"}},
                     experts("up", "gate_up_proj", 2),
                     experts("down", "down_proj", 1)});
}

}  // namespace

Family gpt_oss_family() {
  return {"gpt_oss", "gpt-oss", "GptOssForCausalLM", describe_gpt_oss, gpt_oss_names()};
}

}  // namespace tapeformer
