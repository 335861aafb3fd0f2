#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

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

}  // namespace tapeformer
