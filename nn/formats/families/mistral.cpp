#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_mistral(ConfigMap& map) {
  describe_sizes(map, 131072, 8);
  map.activation("hidden_act", "silu", true);
  map.field("rms_norm_eps", "epsilon", 1e-6);
  fix_biases(map, false, false);
  map.field("attention_dropout", "attention_dropout", 0.0);
  map.fixed("feed_forward_bias", false);
  describe_window(map);
  describe_rotations(map);
  map.field("tie_word_embeddings", "tie_head", false);
}

}  // namespace

Family mistral_family() {
  return {"mistral", "Mistral", "MistralForCausalLM", describe_mistral, llama_names()};
}

}  // namespace tapeformer
