#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family deepseek_v32_family() {
  const auto describe = [](ConfigMap& map) {
    describe_deepseek(map, 163840, 2.5, 3);
    describe_biased_choice(map, 8, 4);
    describe_indexer(map, RotaryLayout::half_split, 64);
  };
  return {"deepseek_v32", "DeepSeek V3.2", "DeepseekV32ForCausalLM", describe, sparse_deepseek_names()};
}

}  // namespace tapeformer
