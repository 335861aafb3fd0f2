#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_llama(ConfigMap& map) {
  describe_sizes(map, 2048);
  map.activation("hidden_act", "silu", true);
  map.field("rms_norm_eps", "epsilon", 1e-6);
  describe_biases(map);
  map.field("attention_dropout", "attention_dropout", 0.0);
  map.field("mlp_bias", "feed_forward_bias", false);
  refuse_window(map);
  describe_rotations(map);
  map.field("tie_word_embeddings", "tie_head", false);
}

}  // namespace

Family llama_family() { return {"llama", "Llama", "LlamaForCausalLM", describe_llama, llama_names()}; }

}  // namespace tapeformer
