#include <tapeformer/nn/formats/layouts.h>

namespace tapeformer {
namespace {

Layout norm_layout(const NormConfig& norm) {
  return {{{norm.width}}, 0, false, norm.kind == NormKind::layer && norm.bias};
}

/// Adds the projections to queries, keys and values, and to the output.
void add_attention(Layouts& model, const std::string& name, const AttentionConfig& config) {
  const AttentionConfig attention = config.resolved();
  const Index H = attention.heads, D = attention.key_width, G = attention.key_heads(),
              E = attention.value_width;
  const RowBlock query{H * D, H}, key{G * D, G}, value{G * E};
  const auto add = [&](const char* part, const std::vector<RowBlock>& blocks) {
    model.parameters[name + "." + part] = {blocks, attention.width, true, attention.bias};
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
}

/// Adds a feed-forward network.
void add_feed_forward(Layouts& model, const std::string& name, const FeedForwardConfig& config,
                      Index experts = 0) {
  const Index C = config.width, F = config.hidden_width();
  const auto blocks = [count = static_cast<std::size_t>(std::max<Index>(experts, 1))](std::size_t of_each,
                                                                                      Index rows) {
    return std::vector<RowBlock>(count * of_each, RowBlock{rows});
  };
  model.parameters[name + ".up"] = {blocks(config.gated ? 2 : 1, F), C, true, config.bias};
  model.parameters[name + ".down"] = {blocks(1, C), F, true, config.bias};
  if (experts > 0) model.parameters[name + ".router"] = {{{experts}}, C, true};
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
                   config.experts.experts);
  add_sublayer("feed_forward");
  if (config.norm_first) model.parameters[side + ".norm"] = norm;
}

}  // namespace

Layouts layouts_of(const DecoderOnlyConfig& config) {
  const AttentionConfig attention = config.attention_config().resolved();
  const Index C = config.width, D = attention.key_width;
  const Layout norm = norm_layout(config.norm_config());
  const std::string layer = "layers.*.";
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
  if (!config.first_norm) model.absent = "layers.0.attention_norm";
  add_attention(model, layer + "attention", config.attention_config());
  add_feed_forward(model, layer + "feed_forward",
                   {C, config.hidden_width(), config.activation, 0, config.feed_forward_bias, config.gated},
                   config.experts.experts);
  if (config.positions == PositionKind::learned) all["positions"] = {{{config.context}}, C};
  if (config.token_types > 0) all["token_types"] = {{{config.token_types}}, C};
  if (config.head_transform) all["head_transform"] = {{{C}}, C, true, config.feed_forward_bias};
  if (config.head_bias) all["head.bias"] = {{{config.vocabulary}}};
  if (config.positions == PositionKind::rotary) model.rotary = config.attention.rotations.layout;
  if (config.tie_head)
    model.ties.emplace_back("head", "embedding");
  else
    all["head"] = {{{config.vocabulary}}, C};
  if (attention.qk_norm != QkNorm::none && attention.qk_norm != QkNorm::plain) {
    const bool is_joint = attention.qk_norm == QkNorm::joint;
    const Index of_queries = is_joint ? attention.heads : 1, of_keys = is_joint ? attention.key_heads() : 1;
    all[layer + "attention.query_norm"] = {{{of_queries * D, of_queries}}};
    all[layer + "attention.key_norm"] = {{{of_keys * D, of_keys}}};
  }
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
