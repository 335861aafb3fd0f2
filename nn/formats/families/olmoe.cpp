#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

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
