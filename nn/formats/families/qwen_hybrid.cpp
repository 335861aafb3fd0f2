#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// Qwen 3 Next and Qwen 3.5, with the default of num_key_value_heads: all but their feed-forward networks.
void describe_qwen_hybrid(ConfigMap& map, Index key_heads) {
  describe_hybrid(
      map, "gated_deltanet", [&] { describe_llama_base(map, 32768, 1e-6, key_heads, 256); },
      [&] {
        const Index period = map.reads->size("full_attention_interval", 4);
        return hybrid_letters(map, [=](Index layer) { return (layer + 1) % period == 0 ? 'F' : 'D'; });
      });
  describe_state_sizes(map, {32, 16, 128, 128});
  map.fixed("beta_scale", 1.0);
  describe_qk_norms(map, QkNorm::rms);
  map.fixed("state_norm_epsilon", map.model.epsilon);
  map.fixed("output_gate", std::string("element"));
  map.demand("attention_bias", false);
  fix_biases(map, false, false);
  map.demand("use_sliding_window", false);
  map.ignore({"sliding_window"});
  map.demand("mlp_only_layers", ConfigMap::Json::array());
  describe_partial_rotations(map, 0.25);
}

/// The names of Qwen 3 Next or Qwen 3.5, with these of the projections of layers D. A gate of layers F shares
/// the matrix of their queries.
TensorNames qwen_hybrid_names(std::vector<TensorName> projections) {
  const std::string layer = "model.layers.*.", state = layer + "linear_attn.";
  projections.insert(projections.end(), {{"layers.D.attention.convolution", {state + "conv1d"}},
                                         {"layers.D.attention.decay_offset", {state + "dt_bias"}},
                                         {"layers.D.attention.decay_rate", {state + "A_log"}},
                                         {"layers.D.attention.norm", {state + "norm"}},
                                         {"layers.D.attention.output", {state + "out_proj"}},
                                         {"layers.F.attention.gate", {layer + "self_attn.q_proj"}}});
  TensorNames names = hybrid_names(llama_names(), projections);
  names.form = kGainsLessOne;
  // They belong to layers that predict several tokens, and to images; transformers passes over them too.
  names.constants = {"mtp.", "model.visual."};
  return names;
}

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

void describe_qwen3_5(ConfigMap& map) {
  describe_qwen_hybrid(map, 4);
  map.fixed("feed_forward_bias", false);
  map.demand("attn_output_gate", true);
  map.ignore({"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});
}

TensorNames qwen3_5_names() {
  const std::string state = "model.layers.*.linear_attn.";
  TensorNames names = qwen_hybrid_names({{"layers.D.attention.query_key_value", {state + "in_proj_qkv"}},
                                         {"layers.D.attention.gate", {state + "in_proj_z"}},
                                         {"layers.D.attention.beta", {state + "in_proj_b"}},
                                         {"layers.D.attention.decay_up", {state + "in_proj_a"}}});
  names.part_prefix = "model.language_model.";
  return names;
}

}  // namespace

Family qwen3_next_family() {
  return {"qwen3_next", "Qwen 3 Next", "Qwen3NextForCausalLM", describe_qwen3_next, qwen3_next_names()};
}

Family qwen3_5_family() {
  return {"qwen3_5_text", "Qwen 3.5 (text)", "Qwen3_5ForCausalLM", describe_qwen3_5, qwen3_5_names()};
}

}  // namespace tapeformer
