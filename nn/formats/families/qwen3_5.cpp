#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

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

Family qwen3_5_family() {
  return {"qwen3_5_text", "Qwen 3.5 (text)", "Qwen3_5ForCausalLM", describe_qwen3_5, qwen3_5_names()};
}

}  // namespace tapeformer
