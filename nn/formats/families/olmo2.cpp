#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

void describe_olmo(ConfigMap& map) {
  describe_llama_base(map, 2048, 1e-5);
  map.activation("hidden_act", "silu", true);
  describe_qk_norms(map, QkNorm::joint);
  map.fixed("sublayer_norms", std::string("output"));
  describe_biases(map);
  map.fixed("feed_forward_bias", false);
}

Family olmo2_family() {
  const auto describe = [](ConfigMap& map) {
    describe_olmo(map), refuse_window(map), describe_rotations(map);
  };
  return {"olmo2", "OLMo 2", "Olmo2ForCausalLM", describe,
          llama_names("post_attention_layernorm", "post_feedforward_layernorm")};
}

}  // namespace tapeformer
