#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// One base for all layers, unless rope_parameters has two.
void describe_olmo3_rotations(ConfigMap& map) {
  map.field("rope_theta", "rotary_base", 5e5);
  if (map.reads) map.model.window_rotary_base = map.model.attention.rotations.base;
  describe_both_rotations(map);
}

void describe_olmo3(ConfigMap& map) {
  describe_olmo(map);
  describe_window(map, 4096);
  describe_layer_types(map, [](Index layer) { return (layer + 1) % 4 != 0; });
  describe_olmo3_rotations(map);
}

}  // namespace

Family olmo3_family() {
  return {"olmo3", "OLMo 3", "Olmo3ForCausalLM", describe_olmo3,
          llama_names("post_attention_layernorm", "post_feedforward_layernorm")};
}

}  // namespace tapeformer
