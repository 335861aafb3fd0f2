#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

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

}  // namespace tapeformer
