#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family phi3_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 4096, 1e-5);
    map.activation("hidden_act", "silu", true);
    map.demand("attention_bias", false);
    fix_biases(map, false, false);
    map.field("resid_pdrop", "residual_dropout", 0.0);
    map.fixed("feed_forward_bias", false);
    describe_window(map);
    describe_partial_rotations(map, 1);
    // Transformers reads the second only with rope_type longrope, and the first never.
    map.ignore({"embd_pdrop", "original_max_position_embeddings"});
  };
  return {
      "phi3", "Phi 3", "Phi3ForCausalLM", describe,
      renamed(llama_names(), {{"layers.*.attention.query_key_value", {"model.layers.*.self_attn.qkv_proj"}},
                              {"layers.*.feed_forward.up", {"model.layers.*.mlp.gate_up_proj"}}})};
}

}  // namespace tapeformer
