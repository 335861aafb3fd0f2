#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/attention/visibility.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/native_sparse.h>
#include <tapeformer/nn/initialization.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapeformer {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Calls each(from, count) for pieces of T queries, so that `rows` weights of `keys` each per query stay in a
/// processor's cache, or take a small part of a GPU's memory.
template <class F>
void for_query_pieces(const Device& device, Index T, Index rows, Index keys, const F& each) {
  const Index most_weights = Index{1} << (device.is_cuda() ? 25 : 19);
  const Index most = std::max<Index>(1, most_weights / std::max<Index>(1, rows * keys));
  for (Index from = 0; from < T; from += most) each(from, std::min(most, T - from));
}

}  // namespace

std::vector<OwnField> NativeSparseAttention::own_fields() {
  return {
      {{"nsa_span", "l, tokens that are compressed to one key", kPositiveSize}, 32},
      {{"nsa_stride", "d, tokens from one compressed key to the next; divides l and l'", kPositiveSize}, 16},
      {{"nsa_block", "l', tokens of a block of which a few are chosen; at least l", kPositiveSize}, 64},
      {{"nsa_top_k", "n, blocks that a token attends to, with its own and the first", kPositiveSize}, 16},
      {{"nsa_window", "w, last tokens that a token attends to, itself included", kPositiveSize}, 512}};
}

NativeSparseAttention::Sizes NativeSparseAttention::sizes_of(const AttentionConfig& config) {
  const auto size = [&](const char* name) { return static_cast<Index>(config.own.at(name)); };
  return {size("nsa_span"), size("nsa_stride"), size("nsa_block"), size("nsa_top_k"), size("nsa_window")};
}

void NativeSparseAttention::complete(AttentionConfig& config) {
  const auto refuse = [&](const char* rule, const std::string& got, const char* remedy) {
    throw Error(format("[attention] {}; got attention={}, {}; try {}", rule, config.kind, got, remedy));
  };
  if (config.cross || config.memory_width != config.width)
    refuse("native sparse attention is causal, and attends to no other memory",
           config.cross ? "cross=true" : format("memory_width={}", config.memory_width), "attention=mha");
  if (config.dropout > 0)
    refuse("native sparse attention has no dropout of weights", "dropout=" + value_text(config.dropout),
           "attention_dropout=0");
  const Sizes n = sizes_of(config);
  if (n.span % n.stride != 0 || n.block % n.stride != 0 || n.block < n.span)
    refuse("nsa_stride must divide nsa_span and nsa_block, and nsa_block be at least nsa_span",
           format("nsa_span={}, nsa_stride={}, nsa_block={}", n.span, n.stride, n.block),
           "nsa_span=32, nsa_stride=16, nsa_block=64");
  config.packed = false;
  config.groups = or_else(config.groups, config.heads);
  if (config.rotary) Rotary::check(config, config.key_width);
}

NativeSparseAttention::NativeSparseAttention(const AttentionConfig& config, Generator& random)
    : config_(config.resolved()),
      sizes_(sizes_of(config_)),
      heads_{config_.heads, config_.key_heads(), config_.key_width, config_.value_width},
      query_({config_.width, heads_.heads * heads_.key_width, config_.bias, {}}, random),
      key_value_(
          {config_.width, 3 * heads_.groups * (heads_.key_width + heads_.value_width), config_.bias, {}},
          random),
      gate_({config_.width, 3 * heads_.heads, config_.bias, {}}, random),
      output_({heads_.heads * heads_.value_width, config_.output_width, *config_.output_bias, {}}, random),
      key_compression_({heads_.key_width, sizes_.span, sizes_.stride}, random),
      value_compression_({heads_.value_width, sizes_.span, sizes_.stride}, random) {
  const Index keys = heads_.groups * heads_.key_width, values = heads_.groups * heads_.value_width;
  xavier_uniform_parts(key_value_.weight(), {keys, keys, keys, values, values, values}, random);
  for (Linear* layer : {&query_, &gate_, &output_}) xavier_uniform(layer->weight(), random);
  for (Linear* layer : {&query_, &key_value_, &gate_, &output_}) clear_bias(*layer);
  if (config_.rotary) rotary_.emplace(config_.rotations, heads_.key_width);
}

/// Sums over the compressed blocks that have each part of d tokens: [..., N] -> [..., N + l / d - 1]
Tensor NativeSparseAttention::per_part(const Tensor& x) const {
  if (x.size(-1) == 0) return x;
  const Index count = sizes_.span / sizes_.stride, parts = x.size(-1) + count - 1;
  Tensor sum;
  for (Index i = 0; i < count; ++i) {
    const Tensor shifted = pad(x, -1, i, parts);
    sum = i == 0 ? shifted : sum + shifted;
  }
  return sum;
}

/// The importance of `blocks` blocks for each query and group, infinite for the first. `first` tokens come
/// before the queries.
/// Shapes:  query [B, T, H, D], key [B, N, G, D] -> [B, T, G, blocks], in the wide type
Tensor NativeSparseAttention::importance(const Tensor& query, const Tensor& key, const AttentionMasks& masks,
                                         Index first, Index blocks) const {
  const NoGradGuard choice_has_no_gradient;
  const auto& [H, G, D, E] = heads_;
  const Index B = query.size(0), T = query.size(1), N = key.size(1), R = H / G;
  const DType type = wide(query.dtype());
  if (T == 0 || blocks < sizes_.top_k)  // no block is left out
    return Tensor::full({B, T, G, blocks}, 0, type, query.device());
  const Tensor first_block = pad(Tensor::full({1}, kInfinite, type, query.device()), 0, 0, blocks);
  const Tensor key_bgnd = permute(cast(key, type), {0, 2, 1, 3});
  const Index parts = sizes_.block / sizes_.stride;
  TensorList pieces;
  for_query_pieces(query.device(), T, B * H, N, [&](Index from, Index count) {
    const bool is_last = from + count == T;
    AttentionMasks own = masks;
    if (!is_last)
      own.key_lengths =
          Tensor::full({B}, static_cast<double>(first + from + count), DType::i32, query.device());
    const Index keys = is_last ? N : whole_spans(first + from + count, sizes_.span, sizes_.stride);
    const Tensor query_btgrd = reshape(cast(slice(query, 1, from, count), type), {B, count, G, R, D});
    const Tensor query_bgrtd = permute(query_btgrd, {0, 2, 3, 1, 4});
    const Tensor scores =
        matmul(reshape(query_bgrtd, {B, G, R * count, D}), transposed(slice(key_bgnd, 2, 0, keys)),
               1 / std::sqrt(static_cast<double>(D)));
    const Tensor pairs = visible_pairs(visible_keys(own, B, count, keys, query.device()), keys);
    const Tensor weights =
        softmax(where(pairs.alias({B, 1, 1, count, keys}), reshape(scores, {B, G, R, count, keys}),
                      Tensor::scalar_like(scores, -kInfinite)));
    const Tensor of_group = R == 1 ? reshape(weights, {B, G, count, keys}) : sum(weights, {2});
    Tensor by_part = per_part(of_group);
    by_part = slice(by_part, -1, 0, std::min(by_part.size(-1), blocks * parts));
    by_part = reshape(pad(by_part, -1, 0, blocks * parts), {B, G, count, blocks, parts});
    pieces.push_back(permute(sum(by_part, {-1}), {0, 2, 1, 3}) + first_block);
  });
  return concat(pieces, 1);
}

/// y times the gate of its branch. Shapes:  y [B, T, H, E], gates [B, T, 3, H] -> [B, T, H, E]
Tensor NativeSparseAttention::gated(const Tensor& y, const Tensor& gates, Index branch) const {
  return y * reshape(slice(gates, 2, branch, 1), {y.size(0), y.size(1), y.size(2), 1});
}

Tensor NativeSparseAttention::operator()(const Tensor& query, const Tensor& memory,
                                         const AttentionContext& context) const {
  check_inputs("native_sparse", query, memory, context.cache);
  check_only_causal("native_sparse",
                    "blocks are counted from the start of a row, so the only mask is the causal one", query,
                    memory, context);
  const auto& [H, G, D, E] = heads_;
  const Index B = query.size(0), T = query.size(1);
  const RotaryAngles turns = angles(query, context);
  const Tensor query_bthd = split_heads(query_(query), H);
  const Tensor rotated_bthd = rotary_ ? rotary(query_bthd, turns) : query_bthd;
  AttentionOptions options;
  options.causal = true, options.weights = context.weights;
  const PackedHeads held{H, 3 * G, D, E};
  const KeyValueHeads kv = cached_heads(context.cache, true, held, options, [&] {
    Tensor packed = key_value_(query);
    if (rotary_) packed = packed_rotary(std::move(packed), 2 * G, D, turns);
    const TensorList parts = split(packed, -1, {3 * G * D, 3 * G * E});
    return KeyValueHeads{split_heads(parts[0], 3 * G), split_heads(parts[1], 3 * G)};
  });
  const TensorList keys = split(kv.key_bsgd, 2, {G, G, G}), values = split(kv.value_bsge, 2, {G, G, G});
  const Index tokens = context.cache != nullptr ? context.cache->length() : T;

  Tensor weights[3];
  const auto options_of = [&](Index branch) {
    AttentionOptions own = options;
    if (context.weights != nullptr) own.weights = &weights[branch];
    return own;
  };
  AttentionOptions compressed = options_of(0), chosen = options_of(1), window = options_of(2);
  compressed.key_span = sizes_.span, compressed.key_stride = sizes_.stride;
  if (!compressed.key_lengths.defined())
    compressed.key_lengths = Tensor::full({B}, static_cast<double>(tokens), DType::i32, query.device());
  chosen.block_size = sizes_.block, chosen.block_top_k = sizes_.top_k;
  window.window_before = sizes_.window - 1;
  const Tensor key_bngd = key_compression_(keys[2]);
  chosen.block_scores =
      importance(query_bthd, key_bngd, compressed, tokens - T, kv.key_bsgd.size(1) / sizes_.block);
  const Tensor gates = reshape(sigmoid(gate_(query)), {B, T, 3, H});
  const Tensor y_bthe =
      gated(scaled_dot_product_attention(query_bthd, key_bngd, value_compression_(values[2]), compressed),
            gates, 0) +
      gated(scaled_dot_product_attention(rotated_bthd, keys[0], values[0], chosen), gates, 1) +
      gated(scaled_dot_product_attention(rotated_bthd, keys[1], values[1], window), gates, 2);
  if (context.weights != nullptr) {
    const Index S = tokens, d = sizes_.stride;
    const Tensor by_part = per_part(weights[0]) * (1 / static_cast<double>(sizes_.span));
    const Index parts = by_part.size(3);
    const Tensor by_token = broadcast_to(reshape(by_part, {B, H, T, parts, 1}), {B, H, T, parts, d});
    weights[0] = pad(reshape(by_token, {B, H, T, parts * d}), 3, 0, S);
    const Tensor gates_b3ht = permute(gates, {0, 2, 3, 1});
    for (Index i = 0; i < 3; ++i) weights[i] = weights[i] * reshape(slice(gates_b3ht, 1, i, 1), {B, H, T, 1});
    *context.weights = weights[0] + weights[1] + weights[2];
  }
  return output_(merge_heads(y_bthe));
}

void NativeSparseAttention::visit(ParameterVisitor& visitor) {
  visitor.child("query", query_);
  visitor.child("key_value", key_value_);
  const Index keys = heads_.groups * heads_.key_width, values = heads_.groups * heads_.value_width;
  visitor.row_parts("key_value.weight", {keys, keys, keys, values, values, values});
  visitor.child("gate", gate_);
  visitor.child("output", output_);
  visitor.child("key_compression", key_compression_);
  visitor.child("value_compression", value_compression_);
}

void NativeSparseAttention::add_cost(const AttentionConfig& config, CostSum& sum) {
  const Sizes n = sizes_of(config);
  const double C = config.width, H = config.heads, G = config.key_heads(), D = config.key_width,
               E = config.value_width, B = sum.call.batch, N = sum.N;
  const Index T = sum.call.queries, S = T + sum.call.cached, count = n.span / n.stride;
  const auto spans = [&](Index tokens) { return whole_spans(tokens, n.span, n.stride); };
  sum.projection(N, C, H * D, config.bias);
  sum.projection(N, C, 3 * G * (D + E), config.bias);
  sum.projection(N, C, 3 * H, config.bias);
  sum.projection(N, H * E, config.output_width, *config.output_bias);
  sum.keeps(N * (C + (config.rotary ? 2 : 1) * H * D + 4 * H * E + 6 * H + 2 * G * (D + E)));
  if (config.rotary) sum.keeps_angles(config, config.key_width);
  const auto blocks = static_cast<double>(spans(S)), parts = blocks + count - 1;
  for (const double width : {D, E}) {
    const double up = static_cast<double>(n.span) * width * width;
    sum.parameters(static_cast<double>(n.span) * width + up + width * width);
    sum.product(B * parts * G + count, up);
    sum.product(B * blocks * G, width * width);
    sum.keeps(B * G * width * (parts * static_cast<double>(n.stride) + 3 * blocks));
  }
  sum.caches(3 * G * (D + E));

  Index pairs = 0, products = 0;
  for (Index t = 0; t < T; ++t) pairs += spans(S - T + t + 1);
  if (S / n.block >= n.top_k)  // pieces of a GPU are longer, and multiply more pairs that are hidden
    for_query_pieces(
        Device::cpu(), T, sum.call.batch * config.heads, spans(S),
        [&](Index from, Index of_piece) { products += of_piece * spans(S - T + from + of_piece); });
  sum.choice(B * H * static_cast<double>(products) * D);
  sum.sees(pairs), sum.attention(H, D, E);
  sum.choose_blocks(n.block, n.top_k, H, G), sum.attention(H, D, E);
  AttentionCall window = sum.call;
  window.window = n.window;
  sum.sees(visible_pair_count(window)), sum.attention(H, D, E);
}

}  // namespace tapeformer
