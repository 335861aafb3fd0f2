#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// Fields that OLMo 2 and 3 have in common: all but windows and rotations.
void describe_olmo(ConfigMap& map) {
  describe_llama_base(map, 2048, 1e-5);
  map.activation("hidden_act", "silu", true);
  describe_qk_norms(map, QkNorm::joint);
  map.fixed("sublayer_norms", std::string("output"));
  describe_biases(map);
  map.fixed("feed_forward_bias", false);
}

void describe_olmo3(ConfigMap& map) {
  describe_olmo(map);
  describe_window(map, 4096);
  describe_layer_types(map, [](Index layer) { return (layer + 1) % 4 != 0; });
  map.field("rope_theta", "rotary_base", 5e5);  // of all layers, unless rope_parameters has two
  if (map.reads) map.model.window_rotary_base = map.model.attention.rotations.base;
  describe_both_rotations(map);
}

/// The names of OLMo 2 and 3.
TensorNames olmo_names() { return llama_names("post_attention_layernorm", "post_feedforward_layernorm"); }

}  // namespace

Family olmo2_family() {
  const auto describe = [](ConfigMap& map) {
    describe_olmo(map), refuse_window(map), describe_rotations(map);
  };
  return {"olmo2", "OLMo 2", "Olmo2ForCausalLM", describe, olmo_names()};
}

Family olmo3_family() { return {"olmo3", "OLMo 3", "Olmo3ForCausalLM", describe_olmo3, olmo_names()}; }

Family olmoe_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 4096, 1e-5);
    fix_head_width(map);  // for norms of queries and keys that are as wide as the states
    map.activation("hidden_act", "silu", true);
    describe_qk_norms(map, QkNorm::joint);
    describe_biases(map);
    describe_experts(map, "num_experts", "num_local_experts", 0.01);
    map.field("norm_topk_prob", "normalized_router", false);
    map.demand("clip_qkv", nullptr);
    describe_rotations(map);
  };
  return {"olmoe", "OLMoE", "OlmoeForCausalLM", describe,
          with_experts(llama_names(), "mlp", "gate_proj", "up_proj", "down_proj")};
}

}  // namespace tapeformer
