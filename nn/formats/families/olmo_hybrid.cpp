#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// Rotary positions, or none if their base is null; that in rope_parameters comes first.
void describe_optional_rotations(ConfigMap& map, PositionKind positions) {
  constexpr const char* kRotations = "rope_parameters";
  if (map.reads) {
    bool is_null = map.reads->is_null("rope_theta");
    if (map.reads->has(kRotations)) {
      JsonFields file = map.reads->object(kRotations);
      is_null = file.is_null("rope_theta") || (is_null && !file.has("rope_theta"));
    }
    if (is_null) positions = PositionKind::none;
  }
  if (positions != PositionKind::none) return describe_rotations(map);
  map.model.positions = positions;
  map.has({"rotary_*"});
  if (map.reads) map.reads->ignore({kRotations});
  if (map.writes) (*map.writes)[kRotations] = {{"rope_type", "default"}, {"rope_theta", nullptr}};
}

/// Layers of both kinds, without which transformers refuses a model; by default every fourth one has full
/// attention, or the last of fewer.
void describe_olmo_layers(ConfigMap& map) {
  DecoderOnlyConfig& model = map.model;
  describe_hybrid(
      map, "gated_deltanet", [&] { describe_llama_base(map, 65536); },
      [&] {
        const Index last = model.layers < 4 ? model.layers - 1 : 3;
        return hybrid_letters(map, [last](Index layer) { return layer % 4 == last ? 'F' : 'D'; });
      });
  const auto layers = static_cast<std::size_t>(model.layers);
  if (!map.fits || layers < 2) return;
  std::string letters = model.attention_pattern.substr(0, layers);
  for (const char letter : {'D', 'F'}) {
    if (letters.find(letter) != std::string::npos) continue;
    if (letters.size() == layers) letters.pop_back();
    letters += letter;
    model.attention_pattern = letters;
  }
}

void describe_olmo_hybrid(ConfigMap& map) {
  const PositionKind positions = map.reads ? PositionKind::rotary : map.model.positions;
  describe_olmo_layers(map);
  describe_state_sizes(map, {});
  map.has({"beta_scale"});
  double& beta_scale = map.model.attention.own["beta_scale"];
  if (map.reads) beta_scale = map.reads->flag("linear_allow_neg_eigval", true) ? 2 : 1;
  if (map.fits && beta_scale != 2) beta_scale = 1;
  if (map.writes) (*map.writes)["linear_allow_neg_eigval"] = beta_scale == 2;
  map.fixed("state_norm_epsilon", 1e-5);
  describe_qk_norms(map, QkNorm::joint);
  map.fixed("sublayer_norms", std::string("mixed"));
  describe_biases(map);
  map.fixed("feed_forward_bias", false);
  describe_optional_rotations(map, positions);
  map.ignore({"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
              "linear_dt_init_floor"});  // of initial values
}

/// Layers with a state have names of their own for norms. Transformers also writes the name of their second
/// one for the first one of other layers.
TensorNames olmo_hybrid_names() {
  const std::string layer = "model.layers.*.", state = layer + "linear_attn.";
  TensorNames names = hybrid_names(
      llama_names("post_attention_layernorm", "post_feedforward_layernorm"),
      {{"layers.D.attention_norm", {layer + "attention_layer_norm"}},
       {"layers.D.attention.query_key_value", {state + "q_proj", state + "k_proj", state + "v_proj"}},
       {"layers.D.attention.convolution", {state + "q_conv1d", state + "k_conv1d", state + "v_conv1d"}},
       {"layers.D.attention.beta", {state + "b_proj"}},
       {"layers.D.attention.decay_up", {state + "a_proj"}},
       {"layers.D.attention.decay_offset", {state + "dt_bias"}},
       {"layers.D.attention.decay_rate", {state + "A_log"}},
       {"layers.D.attention.gate", {state + "g_proj"}},
       {"layers.D.attention.norm", {state + "o_norm"}},
       {"layers.D.attention.output", {state + "o_proj"}},
       {"layers.D.feed_forward_norm", {layer + "feedforward_layer_norm"}}});
  for (TensorName& name : names.list) {
    if (name.ours == "layers.*.attention_norm") name.same = {layer + "feedforward_layer_norm"};
    if (name.ours == "layers.*.attention_norm" || name.ours == "layers.*.feed_forward_norm")
      name.ours.replace(name.ours.find('*'), 1, "F");
  }
  return names;
}

}  // namespace

Family olmo_hybrid_family() {
  return {"olmo_hybrid", "OLMo Hybrid", "OlmoHybridForCausalLM", describe_olmo_hybrid, olmo_hybrid_names()};
}

}  // namespace tapeformer
