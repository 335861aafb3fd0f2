#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_deepseek_v32(ConfigMap& map) {
  describe_deepseek(map, 163840, 2.5, 1e-6);
  describe_biased_choice(map, 8, 4);
  describe_indexer(map, RotaryLayout::half_split, 64);
}

}  // namespace

Family deepseek_v32_family() {
  return {"deepseek_v32", "DeepSeek V3.2", "DeepseekV32ForCausalLM", describe_deepseek_v32,
          sparse_deepseek_names()};
}

}  // namespace tapeformer
