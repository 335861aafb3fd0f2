#include <tapeformer/nn/formats/families/families.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// The heads of states, their one width, and the taps of convolutions.
struct DeltaSizes {
  Index heads, width, taps;
};

/// The letters of layers and, in files as they were published, the sizes: linear_attn_config has these and
/// the numbers of both kinds of layers, from 1 on.
std::string read_layers(ConfigMap& map, DeltaSizes& sizes) {
  if (!map.reads->has("linear_attn_config"))
    return hybrid_letters(map, [](Index layer) { return layer > 0 && layer % 4 == 0 ? 'F' : 'D'; });
  JsonFields file = map.reads->object("linear_attn_config");
  sizes = {file.size("num_heads", sizes.heads), file.size("head_dim", sizes.width),
           file.size("short_conv_kernel_size", sizes.taps)};
  const auto full = file.counts("full_attn_layers"), others = file.counts("kda_layers");
  file.finish();
  const auto has = [](const std::vector<Index>& list, Index layer) {
    return std::count(list.begin(), list.end(), layer + 1) == 1;
  };
  const auto refuse = [&] {
    map.reads->fail("linear_attn_config", "must have each layer in full_attn_layers or kda_layers");
  };
  if (static_cast<Index>(full.size() + others.size()) != map.model.layers) refuse();
  const std::string letters = hybrid_letters(map, [&](Index layer) { return has(full, layer) ? 'F' : 'D'; });
  for (Index i = 0; i < map.model.layers; ++i)
    if (has(full, i) == has(others, i)) refuse();
  return letters;
}

/// Layers with a state, whose keys and values have one width, between those of latent attention.
void describe_layers(ConfigMap& map) {
  DeltaSizes sizes{};
  if (map.reads)
    sizes = {map.reads->size("linear_num_heads", 32), map.reads->size("linear_head_dim", 128),
             map.reads->size("linear_conv_kernel_dim", 4)};
  describe_hybrid(
      map, "kda", [&] { describe_latent_heads(map); }, [&] { return read_layers(map, sizes); });
  map.has({"state_heads", "state_key_heads", "state_key_width", "state_value_width", "convolution_taps",
           "decay_rank"});
  map.fixed("beta_scale", 1.0);
  OwnValues& own = map.model.attention.own;
  const auto number = [](Index size) { return static_cast<double>(size); };
  if (map.reads) {
    own["state_heads"] = number(sizes.heads), own["convolution_taps"] = number(sizes.taps);
    own["state_key_width"] = own["state_value_width"] = number(sizes.width);
    return;
  }
  DecoderOnlyConfig all = map.model;
  all.attention_pattern = "D";
  const AttentionConfig state = all.attention_config().resolved();
  const auto fit = [&](const char* name, Index value) {
    if (map.fits && state.own.at(name) != number(value)) own[name] = 0;
  };
  fit("state_key_heads", state.heads), fit("decay_rank", state.key_width);
  if (map.fits && state.value_width != state.key_width) own["state_value_width"] = own["state_key_width"];
  if (map.fits && state.own.at("convolution_taps") == 0) own["convolution_taps"] = 4;
  if (!map.writes) return;
  ConfigMap::Json& file = *map.writes;
  file["linear_num_heads"] = state.heads, file["linear_head_dim"] = state.key_width;
  file["linear_conv_kernel_dim"] = static_cast<Index>(state.own.at("convolution_taps"));
}

void describe_kimi_linear(ConfigMap& map) {
  describe_states(map, 1048576, "model_max_length");
  describe_layers(map);
  describe_llama_layers(map, 1e-5);
  map.fixed("positions", std::string("none"));  // decays carry the order of tokens
  map.has({"rotary_*"});
  map.fixed("shared_key_rotation", false);
  map.demand("mla_use_nope", true);
  map.fixed("state_norm_epsilon", map.model.epsilon);
  map.activation("hidden_act", "silu", true);
  map.demand("hidden_act", "silu");  // of the convolutions too
  map.demand("attention_bias", false);
  fix_biases(map, false, false);
  map.fixed("feed_forward_bias", false);
  map.field("attention_dropout", "attention_dropout", 0.0);
  map.fixed("router", std::string("sigmoid"));
  map.fixed("balance", std::string("bias"));
  describe_expert_sizes(map, {"num_experts", "num_experts_per_token", "num_shared_experts"}, 2.446, 1);
  map.field("moe_renormalize", "normalized_router", true);
  map.field("num_expert_group", "expert_groups", 1);
  map.field("topk_group", "active_groups", 1);
  map.demand("moe_router_activation_func", "sigmoid");
  map.demand("use_grouped_topk", true);
  map.fixed("tie_head", false);  // transformers never ties it
  map.demand("tie_word_embeddings", false);
  // Positions that are not used, and what concerns training alone.
  map.ignore(
      {"rope_theta", "rope_scaling", "rope_parameters", "output_router_logits", "num_nextn_predict_layers"});
}

TensorNames kimi_linear_names() {
  const std::string state = "model.layers.*.self_attn.";
  TensorNames names = hybrid_names(
      latent_names(),
      {{"layers.D.attention.query_key_value", {state + "q_proj", state + "k_proj", state + "v_proj"}},
       {"layers.D.attention.convolution", {state + "q_conv1d", state + "k_conv1d", state + "v_conv1d"}},
       {"layers.D.attention.beta", {state + "b_proj"}},
       {"layers.D.attention.decay_down", {state + "f_a_proj"}},
       {"layers.D.attention.decay_up", {state + "f_b_proj"}},
       {"layers.D.attention.decay_offset", {state + "dt_bias"}},
       {"layers.D.attention.decay_rate", {state + "A_log"}},
       {"layers.D.attention.gate_down", {state + "g_a_proj"}},
       {"layers.D.attention.gate", {state + "g_b_proj"}},
       {"layers.D.attention.norm", {state + "o_norm"}},
       {"layers.D.attention.output", {state + "o_proj"}}});
  names = with_shared_experts(names, "block_sparse_moe", "w1", "w3", "w2");
  names.form = kRatesByHead;
  names.synonym = {".block_sparse_moe.", ".mlp."};  // of networks without experts, as they were published
  return names;
}

}  // namespace

Family kimi_linear_family() {
  return {"kimi_linear", "Kimi Linear", "KimiLinearForCausalLM", describe_kimi_linear, kimi_linear_names()};
}

}  // namespace tapeformer
