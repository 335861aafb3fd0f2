#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_qwen3_moe(ConfigMap& map) {
  describe_sizes(map, 32768, 4);
  map.size("moe_intermediate_size", "feed_forward", map.model.hidden_width(), 768);
  map.activation("hidden_act", "silu", true);
  map.field("rms_norm_eps", "epsilon", 1e-6);
  describe_qk_norms(map, QkNorm::rms);
  describe_biases(map);
  map.field("attention_dropout", "attention_dropout", 0.0);
  describe_experts(map, "num_experts", "num_local_experts", 0.001);
  map.field("norm_topk_prob", "normalized_router", false);
  map.demand("decoder_sparse_step", 1);
  map.demand("mlp_only_layers", ConfigMap::Json::array());
  refuse_window(map);
  describe_rotations(map);
  map.field("tie_word_embeddings", "tie_head", false);
}

}  // namespace

Family qwen3_moe_family() {
  return {"qwen3_moe", "Qwen 3 MoE", "Qwen3MoeForCausalLM", describe_qwen3_moe,
          with_experts(llama_names(), "mlp", "gate_proj", "up_proj", "down_proj")};
}

}  // namespace tapeformer
