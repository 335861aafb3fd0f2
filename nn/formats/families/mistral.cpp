#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family mistral_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 131072, 1e-6, 8);
    map.activation("hidden_act", "silu", true);
    fix_biases(map, false, false);
    map.fixed("feed_forward_bias", false);
    describe_window(map, 4096);
    describe_rotations(map);
  };
  return {"mistral", "Mistral", "MistralForCausalLM", describe, llama_names()};
}

}  // namespace tapeformer
