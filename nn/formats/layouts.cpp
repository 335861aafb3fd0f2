#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/formats/layouts.h>

namespace tapeformer {
namespace {

Layout norm_layout(const NormConfig& norm) {
  return {{{norm.width}}, 0, false, norm.kind == NormKind::layer && norm.bias, true};
}

/// Adds linear attention by the gated delta rule, or Kimi's. The gain of its norm is always stored whole.
void add_delta_rule(Layouts& model, const std::string& name, const AttentionConfig& attention) {
  const Index C = attention.width, H = attention.heads, D = attention.key_width, E = attention.value_width;
  const auto G = static_cast<Index>(attention.own.at("state_key_heads")),
             K = static_cast<Index>(attention.own.at("convolution_taps"));
  const auto add = [&](const char* part, const std::vector<RowBlock>& blocks, Index columns) {
    model.parameters[name + "." + part] = {blocks, columns, true, false, false, G};
  };
  const bool is_kda = attention.kind == "kda";
  const Index rank = is_kda ? static_cast<Index>(attention.own.at("decay_rank")) : C,
              decays = is_kda ? H * D : H;
  add("query_key_value", {{G * D}, {G * D}, {H * E}}, C), add("beta", {{H}}, C);
  if (is_kda) add("decay_down", {{rank}}, C), add("gate_down", {{E}}, C);
  add("decay_up", {{decays}}, rank), add("gate", {{H * E}}, is_kda ? E : C);
  model.parameters[name + ".decay_offset"] = {{{decays}}};
  model.parameters[name + ".decay_rate"] = {{{H}}};
  if (K > 0)
    model.parameters[name + ".convolution"] = {{{G * D}, {G * D}, {H * E}}, 0, false, false, false, 0, K};
  model.parameters[name + ".norm"] = {{{E}}};
  model.parameters[name + ".output"] = {{{attention.output_width}}, H * E, true};
}

/// Adds latent attention, whose rotary rows and others share tensors in other programs.
void add_latent_attention(Layouts& model, const std::string& name, const AttentionConfig& config) {
  const Index H = config.heads, D = config.key_width, E = config.value_width, L = config.latent_width,
              R = config.rotary_width, C = config.width, inputs = or_else(config.query_latent_width, C);
  const auto add = [&](const char* part, const RowBlock& block, Index columns, Index heads) {
    if (block.rows > 0) model.parameters[name + "." + part] = {{block}, columns, true, false, false, heads};
  };
  const auto add_norm = [&](const char* part, Index width) {
    if (config.norm && width > 0) model.parameters[name + "." + part] = {{{width}}, 0, false, false, true};
  };
  add("query_down", {config.query_latent_width}, C, 0), add_norm("query_norm", config.query_latent_width);
  add("query_up", {H * D}, inputs, H), add("query_rotary", {H * R, H}, inputs, H);
  add("key_value_down", {L}, C, 1), add("key_rotary", {R, 1}, C, 1), add_norm("key_value_norm", L);
  add("key_up", {H * D}, L, H), add("value_up", {H * E}, L, H);
  add("output", {config.output_width}, H * E, 0);
  if (config.index_top_k == 0) return;
  const Index width = config.index_width;
  add("indexer.query", {config.index_heads * width}, inputs, 0), add("indexer.key", {width}, C, 0);
  add("indexer.weights", {config.index_heads}, C, 0);
  model.parameters[name + ".indexer.key_norm"] = {{{width}}, 0, false, true, true};
}

/// Adds the projections to queries, keys and values, and to the output.
void add_attention(Layouts& model, const std::string& name, const AttentionConfig& config) {
  const AttentionConfig attention = config.resolved();
  if (attention.kind == "mla") return add_latent_attention(model, name, attention);
  if (attention.kind == "gated_deltanet" || attention.kind == "kda")
    return add_delta_rule(model, name, attention);
  const Index H = attention.heads, D = attention.key_width, G = attention.key_heads(),
              E = attention.value_width;
  const RowBlock query{H * D, H}, key{G * D, G}, value{G * E};
  const auto add = [&](const char* part, const std::vector<RowBlock>& blocks) {
    model.parameters[name + "." + part] = {blocks, attention.width, true, attention.bias, false, H};
  };
  if (attention.kind == "differential") {
    const Index half = D / 2;
    add("query", {{H * D, 2 * H, H}}), add("key_value", {{G * D, 2 * G, G}, {G * E, 0, G}});
    model.parameters[name + ".lambda_vectors"] = {{{half}, {half}, {half}, {half}}};
    if (attention.head_norm_gain) model.parameters[name + ".head_norm"] = {{{E}}};
  } else if (attention.packed) {
    add("query_key_value", {query, key, value});
  } else {
    add("query", {query}), add("key", {key}), add("value", {value});
  }
  model.parameters[name + ".output"] = {{{attention.output_width}}, H * E, true, *attention.output_bias};
  if (attention.sinks) model.parameters[name + ".sinks"] = {{{H}}};
  if (attention.output_gate != OutputGate::none) {
    const Index gates = attention.output_gate == OutputGate::head ? H : H * E;
    model.parameters[name + ".gate"] = {{{gates}}, attention.width, true, false, false, H};
  }
  if (attention.qk_norm != QkNorm::none && attention.qk_norm != QkNorm::plain) {
    const bool is_joint = attention.qk_norm == QkNorm::joint;
    const Index of_queries = is_joint ? H : 1, of_keys = is_joint ? G : 1;
    const auto add_norm = [&](const char* part, Index count) {
      model.parameters[name + "." + part] = {{{count * D, count}}, 0, false, false, true};
    };
    add_norm("query_norm", of_queries), add_norm("key_norm", of_keys);
  }
}

/// Adds a feed-forward network, or in some layers experts.
void add_feed_forward(Layouts& model, const std::string& name, const FeedForwardConfig& config,
                      const ExpertsConfig& experts, const std::function<bool(Index)>& has_experts = {}) {
  const Index C = config.width, E = experts.experts;
  const auto add = [&](const std::string& part, const Layout& layout) {
    const auto [at, is_new] = model.parameters.emplace(name + part, layout);
    if (!is_new)
      at->second.others = {layout};
    else if (E > 0)
      at->second.in_layer = has_experts;
  };
  const auto add_network = [&](const std::string& network, Index hidden, Index count) {
    const auto blocks = [count](std::size_t of_each, Index rows) {
      return std::vector<RowBlock>(static_cast<std::size_t>(count) * of_each, RowBlock{rows});
    };
    add(network + ".up", {blocks(config.gated ? 2 : 1, hidden), C, true, config.bias});
    add(network + ".down", {blocks(1, C), hidden, true, config.bias});
  };
  if (E > 0) {
    add_network("", or_else(experts.width, config.hidden_width()), E);
    add(".router", {{{E}}, C, true, config.bias});
    if (experts.balance == RouterBalance::bias) add(".choice_bias", {{{E}}});
    if (experts.shared > 0) add_network(".shared", experts.shared, 1);
    if (experts.shared_gate) add(".shared_gate", {{{1}}, C, true});
  }
  if (E == 0 || has_experts) add_network("", config.hidden_width(), 1);
}

/// Adds an encoder or a decoder, whose layers have these norms.
void add_stack(Layouts& model, const std::string& side, const TransformerLayerConfig& config, Index layers,
               Index vocabulary, const EncoderDecoderConfig& whole) {
  const Index C = config.width;
  const std::string layer = side + ".*.";
  const Layout norm = norm_layout(config.norm_config());
  const auto add_sublayer = [&](const std::string& name) { model.parameters[layer + name + "_norm"] = norm; };
  model.layers[side + "."] = layers;
  model.parameters[side + ".embedding"] = {{{vocabulary}}, C};
  if (whole.embedding_norm) model.parameters[side + ".embedding_norm"] = norm;
  if (whole.shared_buckets)
    model.parameters[side + ".0.self_attention.relative_bias"] = {{{config.attention.bias_buckets}},
                                                                  config.attention.heads};
  if (whole.positions == PositionKind::learned)
    model.parameters[side + ".positions"] = {{{whole.max_length}}, C};
  AttentionConfig self = config.attention_config(false);
  self.add_positions(whole.positions);
  add_attention(model, layer + "self_attention", self), add_sublayer("self_attention");
  if (side == "decoder") {
    add_attention(model, layer + "cross_attention", config.attention_config(true));
    add_sublayer("cross_attention");
  }
  add_feed_forward(model, layer + "feed_forward",
                   {C, config.feed_forward, config.activation, 0, config.feed_forward_bias, config.gated},
                   config.experts);
  add_sublayer("feed_forward");
  if (config.norm_first) model.parameters[side + ".norm"] = norm;
}

}  // namespace

const Layout* Layouts::find(const std::string& name, Index layer) const {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return nullptr;
  const Layout& layout = found->second;
  if (!layout.in_layer || layout.in_layer(layer)) return &layout;
  return layout.others.empty() ? nullptr : &layout.others[0];
}

Layouts layouts_of(const DecoderOnlyConfig& config) {
  const Index C = config.width;
  const Layout norm = norm_layout(config.norm_config());
  const std::string layer = "layers.*.";
  std::function<bool(Index)> has_experts;
  if (config.experts_from > 0)
    has_experts = [from = config.experts_from](Index number) { return number >= from; };
  Layouts model{{{"embedding", {{{config.vocabulary}}, C}}}, {{"layers.", config.layers}}, {}};
  auto& all = model.parameters;
  if (config.norm_gain) {
    all[layer + "attention_norm"] = all[layer + "feed_forward_norm"] = norm;
    if (config.sublayer_norms != SublayerNorms::sum) all["norm"] = norm;
    if (config.embedding_norm) all["embedding_norm"] = norm;
    if (config.head_transform) all["head_norm"] = norm;
    if (config.sublayer_norms == SublayerNorms::both)
      all[layer + "attention_output_norm"] = all[layer + "feed_forward_output_norm"] = norm;
  }
  if (!config.first_norm) all[layer + "attention_norm"].in_layer = [](Index number) { return number > 0; };
  if (config.attention_pattern.empty())
    add_attention(model, layer + "attention", config.attention_config());
  else
    for (Index i = 0; i < config.layers; ++i) {
      const char letter = config.has_full_attention(i) ? 'F' : 'D';
      if (model.letters.find(letter) == std::string::npos)
        add_attention(model, std::string("layers.") + letter + ".attention", config.attention_config(i));
      model.letters += letter;
    }
  add_feed_forward(model, layer + "feed_forward",
                   {C, config.hidden_width(), config.activation, 0, config.feed_forward_bias, config.gated},
                   config.experts, has_experts);
  if (config.positions == PositionKind::learned) all["positions"] = {{{config.context}}, C};
  if (config.token_types > 0) all["token_types"] = {{{config.token_types}}, C};
  if (config.head_transform) all["head_transform"] = {{{C}}, C, true, config.feed_forward_bias};
  if (config.head_bias) all["head.bias"] = {{{config.vocabulary}}};
  const AttentionConfig first = config.attention_config().resolved();
  const bool has_rotary_keys = first.rotary_width > 0 && first.shared_key_rotation;
  if (config.positions == PositionKind::rotary || has_rotary_keys)
    model.rotary = config.attention.rotations.layout;
  if (config.tie_head)
    model.ties.emplace_back("head", "embedding");
  else
    all["head"] = {{{config.vocabulary}}, C};
  return model;
}

Layouts layouts_of(const EncoderDecoderConfig& config) {
  Layouts model;
  add_stack(model, "encoder", config.layer, config.encoder_layers, config.source_vocabulary, config);
  add_stack(model, "decoder", config.decoder_layer(), config.decoder_layers, config.target_vocabulary,
            config);
  const Index V = config.target_vocabulary, C = config.layer.width;
  auto& all = model.parameters;
  model.shares_embeddings = config.tie_embeddings;
  if (config.tie_embeddings) {
    model.ties.emplace_back("decoder.embedding", "encoder.embedding");
    all.erase("decoder.embedding");
  }
  if (config.head_bias) all["head.bias"] = {{{V}}};
  if (config.tie_target_head)
    model.ties.emplace_back("head.weight", config.tie_embeddings ? "encoder.embedding" : "decoder.embedding");
  else
    all["head.weight"] = {{{V}}, C, true};
  return model;
}

}  // namespace tapeformer
