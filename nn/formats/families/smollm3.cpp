#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// The layers with rotary positions, and those with a window, which are usually the others.
void describe_smollm3_layers(ConfigMap& map) {
  map.has({"position_pattern"});
  DecoderOnlyConfig& model = map.model;
  std::string& letters = model.position_pattern;
  describe_window(map);
  if (map.reads) {
    for (const Index rotates : map.reads->counts("no_rope_layers")) letters += rotates > 0 ? 'R' : 'N';
    if (static_cast<Index>(letters.size()) != model.layers)
      map.reads->fail("no_rope_layers", "must have an entry for each layer");
    if (letters.find('N') == std::string::npos) letters.clear();
    if (!map.reads->flag("use_sliding_window", false)) model.window = 0;
  }
  describe_layer_types(map, [&](Index layer) { return !model.has_positions(layer); });
  // no_rope_layers follows from the first, and the second has no effect.
  map.ignore({"no_rope_layer_interval", "max_window_layers"});
  if (!map.writes) return;
  (*map.writes)["use_sliding_window"] = model.window > 0;
  for (Index i = 0; i < model.layers; ++i)
    (*map.writes)["no_rope_layers"].push_back(model.has_positions(i) ? 1 : 0);
}

void describe_smollm3(ConfigMap& map) {
  describe_llama_base(map, 32768, 1e-6, 4, 0, true);
  map.activation("hidden_act", "silu", true);
  describe_biases(map);
  map.field("mlp_bias", "feed_forward_bias", false);
  describe_smollm3_layers(map);
  describe_rotations(map, 2e6);
}

}  // namespace

Family smollm3_family() {
  return {"smollm3", "SmolLM3", "SmolLM3ForCausalLM", describe_smollm3, llama_names()};
}

}  // namespace tapeformer
