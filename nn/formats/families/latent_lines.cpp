#include <tapeformer/nn/formats/families/families.h>

#include <cmath>

namespace tapeformer {

void describe_latent_heads(ConfigMap& map) {
  map.has({"attention", "heads", "head_width", "latent_width", "query_latent_width", "rotary_width"});
  AttentionConfig& attention = map.model.attention;
  if (map.fits) fit_kind(map.model, "mla");
  if (map.reads) {
    JsonFields& file = *map.reads;
    attention.kind = "mla";
    attention.heads = file.size("num_attention_heads");
    if (file.has("num_key_value_heads")) file.demand("num_key_value_heads", attention.heads);
    attention.key_width = file.size("qk_nope_head_dim");
    if (file.has("v_head_dim")) file.demand("v_head_dim", attention.key_width);
    attention.rotary_width = file.size("qk_rope_head_dim");
    attention.latent_width = file.size("kv_lora_rank");
    attention.query_latent_width = file.has("q_lora_rank") ? file.size("q_lora_rank") : 0;
  }
  map.ignore({"q_lora_rank", "head_dim", "qk_head_dim"});  // the last two follow from others
  if (!map.writes) return;
  ConfigMap::Json& file = *map.writes;
  const AttentionConfig full = map.model.attention_config().resolved();
  file["num_attention_heads"] = file["num_key_value_heads"] = full.heads;
  file["qk_nope_head_dim"] = file["v_head_dim"] = full.key_width;
  file["qk_rope_head_dim"] = full.rotary_width;
  file["kv_lora_rank"] = full.latent_width;
  file["q_lora_rank"] = full.query_latent_width > 0 ? ConfigMap::Json(full.query_latent_width) : nullptr;
}

void describe_latent_attention(ConfigMap& map) {
  describe_latent_heads(map);
  map.fixed("shared_key_rotation", true);
  map.activation("hidden_act", "silu", true);
  fix_biases(map, false, false);
  map.demand("attention_bias", false);
  map.demand("mlp_bias", false);
  map.fixed("feed_forward_bias", false);
  map.field("attention_dropout", "attention_dropout", 0.0);
  map.field("rope_theta", "rotary_base", 1e4);
  map.demand("partial_rotary_factor", 1.0);
  map.fixed("rotary_reversed", false);
  map.fixed("rotary_components", Index{0});
  describe_scaling(map);
}

void describe_score_scale(ConfigMap& map) {
  map.has({"score_scale"});
  AttentionConfig& attention = map.model.attention;
  const RotaryConfig& rotations = attention.rotations;
  const bool can_scale = rotations.yarn && rotations.factor > 1;
  const double slope = 0.1 * std::log(rotations.factor);
  if (map.reads && rotations.yarn) {
    JsonFields scaling =
        map.reads->object(map.reads->has("rope_scaling") ? "rope_scaling" : "rope_parameters");
    const double scale =
        can_scale && scaling.has("mscale_all_dim") ? slope * scaling.number("mscale_all_dim") + 1 : 1;
    const auto width = static_cast<double>(attention.key_width + attention.rotary_width);
    if (scale != 1) attention.score_scale = scale * scale / std::sqrt(width);
  }
  if (map.fits && !can_scale) attention.score_scale = 0;
  if (!map.writes || attention.score_scale == 0) return;
  const AttentionConfig full = map.model.attention_config().resolved();
  const auto width = static_cast<double>(full.key_width + full.rotary_width);
  (*map.writes)["rope_scaling"]["mscale_all_dim"] =
      (std::sqrt(attention.score_scale * std::sqrt(width)) - 1) / slope;
}

TensorNames latent_names() {
  const auto ours = [](const char* name) { return std::string("layers.*.attention.") + name; };
  std::vector<TensorName> latent;
  const auto add = [&](const char* name, const char* theirs, const std::string& needs = {}) {
    latent.push_back({ours(name), {std::string("model.layers.*.self_attn.") + theirs}, 0, {}, needs});
  };
  add("query_down", "q_a_proj"), add("query_norm", "q_a_layernorm");
  for (const char* const part : {"query_up", "query_rotary"}) add(part, "q_b_proj", ours("query_down"));
  for (const char* const part : {"query_up", "query_rotary"}) add(part, "q_proj");
  for (const char* const part : {"key_value_down", "key_rotary"}) add(part, "kv_a_proj_with_mqa");
  add("key_value_norm", "kv_a_layernorm");
  for (const char* const part : {"key_up", "value_up"}) add(part, "kv_b_proj");
  return with_names(llama_names(), "layers.*.attention.query_key_value", latent);
}

}  // namespace tapeformer
