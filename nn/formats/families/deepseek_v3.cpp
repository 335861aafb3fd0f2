#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family deepseek_v3_family() {
  const auto describe = [](ConfigMap& map) {
    describe_deepseek(map, 4096, 2.5, 3);
    if (map.reads && !map.reads->flag("rope_interleave", true))
      map.model.attention.rotations.layout = RotaryLayout::half_split;
    describe_biased_choice(map, 8, 4);
  };
  return {"deepseek_v3", "DeepSeek V3", "DeepseekV3ForCausalLM", describe, deepseek_names()};
}

}  // namespace tapeformer
