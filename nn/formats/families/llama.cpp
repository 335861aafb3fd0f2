#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_llama(ConfigMap& map) {
  describe_llama_base(map, 2048);
  map.activation("hidden_act", "silu", true);
  describe_biases(map);
  map.field("mlp_bias", "feed_forward_bias", false);
  refuse_window(map);
  describe_rotations(map);
}

}  // namespace

Family llama_family() { return {"llama", "Llama", "LlamaForCausalLM", describe_llama, llama_names()}; }

}  // namespace tapeformer
