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
    map.demand("rope_interleaved", false);
    map.ignore({"is_llama_config", "max_sequence_length"});  // in files of SmolLM2 and of the first Llama
  };
  return {"llama", "Llama", "LlamaForCausalLM", describe, llama_names()};
}

}  // namespace tapeformer
