#pragma once

#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/tests/nn/module_case.h>

#include <numeric>

namespace tapeformer {

using ChooseOptions = std::function<void(AttentionConfig&)>;

/// A layer whose sizes all differ: C 6, H 4, G 2 of gqa, D 6, E 5.
inline AttentionConfig layer_config(const std::string& kind, const ChooseOptions& choose = {}) {
  AttentionConfig config(kind, 4);
  config.width = 6, config.key_width = 6, config.value_width = 5;
  if (kind == "gqa") config.groups = 2;
  if (choose) choose(config);
  return config;
}

/// A layer with the weights of a packed one, and a matrix for each projection.
inline MultiHeadAttention taken_apart(AttentionConfig config, MultiHeadAttention& packed) {
  config.packed = false;
  MultiHeadAttention apart = random_module<MultiHeadAttention>(config);
  const PackedHeads sizes{config.heads, config.heads, config.resolved().key_width,
                          config.resolved().value_width};
  const Index queries = sizes.heads * sizes.key_width;
  const std::map<std::string, std::pair<Index, Index>> rows = {
      {"query", {0, queries}},
      {"key", {queries, queries}},
      {"value", {2 * queries, sizes.heads * sizes.value_width}}};
  const std::map<std::string, Tensor> p = parameters_of(packed);
  for (auto& [name, parameter] : apart.named_parameters()) {
    const std::size_t dot = name.find('.');
    const auto part = rows.find(name.substr(0, dot));
    parameter.set_value(part == rows.end() ? p.at(name).clone()
                                           : slice(p.at("query_key_value" + name.substr(dot)), 0,
                                                   part->second.first, part->second.second));
  }
  return apart;
}

/// The inputs of a layer, and a first layer's values.
struct LayerInputs {
  Tensor x, first;
  LayerInputs(const AttentionConfig& config, Index length, Index batch = 2)
      : x(random_values({batch, length, config.width}, 3)),
        first(random_values({batch, length, config.resolved().key_heads(), config.value_width}, 5)) {}

  /// The context of a call on `count` tokens from `from` on.
  AttentionContext context(Index from, Index count) const {
    AttentionContext context = causal_context();
    context.first_values = slice(first, 1, from, count);
    return context;
  }
  AttentionContext context() const { return context(0, x.size(1)); }
};

/// The outputs of self-attention through a cache: five tokens at first, then three, then one by one.
inline Tensor decoded(const MultiHeadAttention& layer, const LayerInputs& in, CacheKind kind) {
  const auto cache = make_cache({kind, 0, 7}, layer.cache_widths());
  TensorList rows;
  for (Index from = 0; from < in.x.size(1);) {
    const Index count = std::min<Index>(from == 0 ? 5 : from == 5 ? 3 : 1, in.x.size(1) - from);
    AttentionContext context = in.context(from, count);
    context.cache = cache.get();
    const Tensor piece = slice(in.x, 1, from, count);
    rows.push_back(layer(piece, piece, context));
    from += count;
  }
  return concat(rows, 1);
}

/// A piece in plain operations within causal self-attention, with p its layer's parameters.
struct HeadFormula {
  using Parameters = std::map<std::string, Tensor>;
  std::function<void(Parameters& p, const LayerInputs& in, Tensor& query, Tensor& key, Tensor& value)> heads =
      {};
  std::function<void(Parameters& p, AttentionOptions& options)> scores = {};
  /// `own` holds the value of each head's own token.
  std::function<Tensor(Parameters& p, const LayerInputs& in, const Tensor& y, const Tensor& own)> output = {};
};

/// A layer's output by its formulas, in operations that store all weights.
inline Tensor by_formula(MultiHeadAttention& layer, const AttentionConfig& given, const LayerInputs& in,
                         const HeadFormula& formula) {
  const AttentionConfig config = given.resolved();
  const Index B = in.x.size(0), T = in.x.size(1), H = config.heads, G = config.key_heads(),
              D = config.key_width, E = config.value_width;
  std::map<std::string, Tensor> p = parameters_of(layer);
  const Tensor packed = linear(in.x, p["query_key_value.weight"], p["query_key_value.bias"]);
  Tensor query = reshape(slice(packed, 2, 0, H * D), {B, T, H, D}),
         key = reshape(slice(packed, 2, H * D, G * D), {B, T, G, D}),
         value = reshape(slice(packed, 2, (H + G) * D, G * E), {B, T, G, E});
  if (formula.heads) formula.heads(p, in, query, key, value);
  if (config.rotary) {
    std::vector<std::int32_t> places(static_cast<std::size_t>(T));
    std::iota(places.begin(), places.end(), 0);
    const Tensor at = ids_of(places, {T});
    query = rotary(query, at, config.rotations), key = rotary(key, at, config.rotations);
  }
  AttentionOptions options;
  options.causal = true;
  if (formula.scores) formula.scores(p, options);
  Tensor y = composed_attention(query, key, value, options);
  const Tensor own =
      reshape(broadcast_to(reshape(value, {B, T, G, 1, E}), {B, T, G, H / G, E}), {B, T, H, E});
  if (formula.output) y = formula.output(p, in, y, own);
  return linear(reshape(y, {B, T, H * E}), p["output.weight"], p["output.bias"]);
}

/// Compares layers that have a piece with its formula: packed and, with a key head per head, apart; with
/// rotary positions or not; lengths around a tile.
inline void check_formula(const ChooseOptions& choose, const HeadFormula& formula) {
  for (const char* const kind : {"mha", "gqa", "mqa"}) {
    for (const bool rotary : {false, true}) {
      for (const Index length : {1, 31, 32, 33}) {
        CAPTURE(kind);
        CAPTURE(rotary);
        CAPTURE(length);
        AttentionConfig config = layer_config(kind, choose);
        config.rotary = rotary;
        MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
        const LayerInputs in(config, length);
        CHECK_BELOW(relative_error(layer(in.x, in.x, in.context()), by_formula(layer, config, in, formula)),
                    1e-12);
      }
    }
  }
}

}  // namespace tapeformer
