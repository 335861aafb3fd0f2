#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_qwen2(ConfigMap& map) {
  describe_sizes(map, 32768, 32);
  map.activation("hidden_act", "silu", true);
  map.field("rms_norm_eps", "epsilon", 1e-6);
  fix_biases(map, true, false);
  map.field("attention_dropout", "attention_dropout", 0.0);
  map.fixed("feed_forward_bias", false);
  describe_qwen_windows(map);
  describe_rotations(map);
  map.field("tie_word_embeddings", "tie_head", false);
}

}  // namespace

Family qwen2_family() { return {"qwen2", "Qwen 2", "Qwen2ForCausalLM", describe_qwen2, llama_names()}; }

}  // namespace tapeformer
