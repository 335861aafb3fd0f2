#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// The scaling of layers without a window, and the base of those with one, in rope_parameters of both types
/// of layers, which transformers reads from version 5 on.
void describe_olmo3_rotations(ConfigMap& map) {
  map.field("rope_theta", "rotary_base", 5e5);
  map.has({"window_rotary_base"});
  const RotaryConfig& rotations = map.model.attention.rotations;
  double& base = map.model.window_rotary_base;
  if (map.reads) base = rotations.base;
  rotate_whole_heads(map);
  describe_scaling(map, read_both_scalings);
  const bool has_window = map.model.window > 0,
             is_scaled = rotations.factor != 1 || rotations.original_context > 0;
  if (!has_window || (map.reads && !is_scaled && base == rotations.base)) base = 0;
  if (map.fits && has_window && is_scaled && base == 0) base = rotations.base;
  if (!map.writes) return;
  ConfigMap::Json& file = *map.writes;
  ConfigMap::Json windows = {{"rope_type", "default"}}, full = file.value("rope_scaling", windows);
  windows["rope_theta"] = base > 0 ? base : rotations.base;
  full["rope_theta"] = rotations.base;
  file.erase("rope_scaling");
  file["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", windows}};
}

void describe_olmo3(ConfigMap& map) {
  describe_olmo(map);
  if (map.reads) map.model.window = 4096;  // unless the file says otherwise
  describe_window(map);
  describe_layer_types(map, [](Index layer) { return (layer + 1) % 4 != 0; });
  describe_olmo3_rotations(map);
}

}  // namespace

Family olmo3_family() {
  return {"olmo3", "OLMo 3", "Olmo3ForCausalLM", describe_olmo3,
          llama_names("post_attention_layernorm", "post_feedforward_layernorm")};
}

}  // namespace tapeformer
