#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family gemma2_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 8192, 1e-6, 4, 256, true);
    describe_gemma(map);
    describe_softcap(map, "attn_logit_softcapping", "softcap", map.model.attention.softcap, 50);
    describe_softcap(map, "final_logit_softcapping", "logit_softcap", map.model.logit_softcap, 30);
    describe_biases(map);
    describe_window(map, 4096);
    describe_layer_types(map, [](Index layer) { return layer % 2 == 0; });
    describe_rotations(map);
  };
  return {"gemma2", "Gemma 2", "Gemma2ForCausalLM", describe, gemma_names()};
}

}  // namespace tapeformer
