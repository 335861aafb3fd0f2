#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family llama_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 2048);
    map.activation("hidden_act", "silu", true);
    describe_biases(map);
    map.field("mlp_bias", "feed_forward_bias", false);
    refuse_window(map);
    describe_rotations(map);
  };
  return {"llama", "Llama", "LlamaForCausalLM", describe, llama_names()};
}

}  // namespace tapeformer
