#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_qwen2(ConfigMap& map) {
  describe_llama_base(map, 32768, 1e-6, 32);
  map.activation("hidden_act", "silu", true);
  fix_biases(map, true, false);
  map.fixed("feed_forward_bias", false);
  describe_qwen_windows(map);
  describe_rotations(map);
}

}  // namespace

Family qwen2_family() { return {"qwen2", "Qwen 2", "Qwen2ForCausalLM", describe_qwen2, llama_names()}; }

}  // namespace tapeformer
