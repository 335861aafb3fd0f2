#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_qwen3(ConfigMap& map) {
  describe_sizes(map, 32768, 32, 128);
  map.activation("hidden_act", "silu", true);
  map.field("rms_norm_eps", "epsilon", 1e-6);
  describe_qk_norms(map, QkNorm::rms);
  describe_biases(map);
  map.field("attention_dropout", "attention_dropout", 0.0);
  map.fixed("feed_forward_bias", false);
  describe_qwen_windows(map);
  describe_rotations(map);
  map.field("tie_word_embeddings", "tie_head", false);
}

}  // namespace

Family qwen3_family() { return {"qwen3", "Qwen 3", "Qwen3ForCausalLM", describe_qwen3, llama_names()}; }

}  // namespace tapeformer
