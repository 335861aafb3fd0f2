#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// The windows of Qwen's layers, of which the first max_window_layers have none.
void describe_qwen_windows(ConfigMap& map) {
  describe_window(map, 4096);
  Index first = 0;
  if (map.reads) {
    if (!map.reads->flag("use_sliding_window", false)) map.model.window = 0;
    first = map.reads->count("max_window_layers", 28);
  }
  if (map.writes) {
    (*map.writes)["use_sliding_window"] = map.model.window > 0;
    (*map.writes)["max_window_layers"] = first_layer(map.model, true);  // for versions without layer_types
  }
  describe_layer_types(map, [=](Index layer) { return layer >= first; });
}

}  // namespace

Family qwen2_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 32768, 1e-6, 32);
    map.activation("hidden_act", "silu", true);
    fix_biases(map, true, false);
    map.fixed("feed_forward_bias", false);
    describe_qwen_windows(map);
    describe_rotations(map);
    map.demand("use_mrope", false);
  };
  return {"qwen2", "Qwen 2", "Qwen2ForCausalLM", describe, llama_names()};
}

Family qwen3_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 32768, 1e-6, 32, 128);
    map.activation("hidden_act", "silu", true);
    describe_qk_norms(map, QkNorm::rms);
    describe_biases(map);
    map.fixed("feed_forward_bias", false);
    describe_qwen_windows(map);
    describe_rotations(map);
  };
  return {"qwen3", "Qwen 3", "Qwen3ForCausalLM", describe, llama_names()};
}

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
