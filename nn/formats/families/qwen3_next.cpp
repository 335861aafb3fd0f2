#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_qwen3_next(ConfigMap& map) {
  describe_qwen_hybrid(map, 2);
  map.size("moe_intermediate_size", "feed_forward", map.model.hidden_width(), 512);
  describe_experts(map, "num_experts", "num_local_experts", 0.001, "shared_expert_intermediate_size");
  map.field("norm_topk_prob", "normalized_router", true);
  map.demand("decoder_sparse_step", 1);
}

/// Two matrices have the rows of all projections by head.
TensorNames qwen3_next_names() {
  const std::string state = "model.layers.*.linear_attn.";
  const std::string qkvz = state + "in_proj_qkvz", ba = state + "in_proj_ba";
  const TensorNames names = qwen_hybrid_names({{"layers.D.attention.query_key_value", {qkvz, qkvz, qkvz}},
                                               {"layers.D.attention.gate", {qkvz}},
                                               {"layers.D.attention.beta", {ba}},
                                               {"layers.D.attention.decay_up", {ba}}});
  return with_experts(names, "mlp", "gate_proj", "up_proj", "down_proj", "shared_expert");
}

}  // namespace

Family qwen3_next_family() {
  return {"qwen3_next", "Qwen 3 Next", "Qwen3NextForCausalLM", describe_qwen3_next, qwen3_next_names()};
}

}  // namespace tapeformer
