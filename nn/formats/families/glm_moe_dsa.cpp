#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_glm_moe_dsa(ConfigMap& map) {
  describe_deepseek(map, 202752, 2.5, 1e-5);
  describe_biased_choice(map, 1, 1);
  describe_indexer(map, RotaryLayout::interleaved, 32);
}

}  // namespace

Family glm_moe_dsa_family() {
  return {"glm_moe_dsa", "GLM 5", "GlmMoeDsaForCausalLM", describe_glm_moe_dsa, sparse_deepseek_names()};
}

}  // namespace tapeformer
