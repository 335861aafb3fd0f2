#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family qwen3_moe_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 32768, 1e-6, 4);
    map.size("moe_intermediate_size", "feed_forward", map.model.hidden_width(), 768);
    map.activation("hidden_act", "silu", true);
    describe_qk_norms(map, QkNorm::rms);
    describe_biases(map);
    describe_experts(map, "num_experts", "num_local_experts", 0.001);
    map.field("norm_topk_prob", "normalized_router", false);
    map.demand("decoder_sparse_step", 1);
    map.demand("mlp_only_layers", ConfigMap::Json::array());
    map.demand("use_sliding_window", false);
    map.ignore({"sliding_window", "max_window_layers"});  // without effect then
    describe_rotations(map);
  };
  return {"qwen3_moe", "Qwen 3 MoE", "Qwen3MoeForCausalLM", describe,
          with_experts(llama_names(), "mlp", "gate_proj", "up_proj", "down_proj")};
}

}  // namespace tapeformer
