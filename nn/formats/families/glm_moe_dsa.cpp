#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family glm_moe_dsa_family() {
  const auto describe = [](ConfigMap& map) {
    describe_deepseek(map, 202752, 2.5, 3, 1e-5);
    describe_biased_choice(map, 1, 1);
    describe_indexer(map, RotaryLayout::interleaved, 32);
  };
  return {"glm_moe_dsa", "GLM 5", "GlmMoeDsaForCausalLM", describe, sparse_deepseek_names()};
}

}  // namespace tapeformer
