#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/differential.h>
#include <tapeformer/nn/initialization.h>

#include <cmath>

namespace tapeformer {
namespace {

constexpr double kVectorDeviation = 0.1;  // as in the authors' code

/// Queries that each see one half of a key: [B, T, H, D] -> [B, T, 2 H, D], (q1, 0) and (0, q2) of each head.
Tensor halves_apart(const Tensor& query) {
  const Index B = query.size(0), T = query.size(1), H = query.size(2), D = query.size(3);
  const auto half = [&](Index from) {
    return reshape(pad(slice(query, 3, from, D / 2), 3, from, D), {B, T, H, 1, D});
  };
  return reshape(concat({half(0), half(D / 2)}, 3), {B, T, 2 * H, D});
}

/// A mask per head, [..., H, T, S], repeated for both of its queries, [..., 2 H, T, S].
Tensor for_pairs(const Tensor& mask, Index heads) {
  if (!mask.defined() || mask.rank() < 3 || mask.size(-3) != heads || heads == 1) return mask;
  if (mask.dtype() == DType::boolean) return for_pairs(mask.to(DType::f32), heads).to(DType::boolean);
  const Index T = mask.size(-2), S = mask.size(-1), B = mask.rank() == 3 ? 1 : mask.size(0);
  const Tensor both = broadcast_to(reshape(mask, {B, heads, 1, T, S}), {B, heads, 2, T, S});
  return reshape(both, mask.rank() == 3 ? Shape{2 * heads, T, S} : Shape{B, 2 * heads, T, S});
}

/// first - lambda second, of neighbouring heads: [B, T, 2 H, E] -> [B, T, H, E]
Tensor difference(const Tensor& pairs, const Tensor& lambda) {
  const Index B = pairs.size(0), T = pairs.size(1), H = pairs.size(2) / 2, E = pairs.size(3);
  const Tensor apart = reshape(pairs, {B, T, H, 2, E});
  const auto part = [&](Index which) { return reshape(slice(apart, 3, which, 1), {B, T, H, E}); };
  return part(0) - lambda * part(1);
}

}  // namespace

void DifferentialAttention::complete(AttentionConfig& config) {
  config.packed = false;
  config.groups = or_else(config.groups, config.heads);
  if (config.key_width % 2 != 0)
    throw Error(
        format("[attention] differential attention halves its heads; got attention={}, a width of {}; "
               "try an even width of the heads",
               config.kind, config.key_width));
  if (config.rotary) Rotary::check(config, config.key_width / 4 * 2);
}

DifferentialAttention::DifferentialAttention(const AttentionConfig& config, Generator& random)
    : config_(config.resolved()),
      heads_{config_.heads, config_.key_heads(), config_.key_width, config_.value_width},
      query_({config_.width, heads_.heads * heads_.key_width, config_.bias, {}}, random),
      key_value_(
          {config_.memory_width, heads_.groups * (heads_.key_width + heads_.value_width), config_.bias, {}},
          random),
      output_({heads_.heads * heads_.value_width, config_.output_width, *config_.output_bias, {}}, random),
      dropout_({config_.dropout}, random),
      lambda_vectors_(Tensor::empty({2 * heads_.key_width})),
      head_norm_(
          {NormKind::rms, heads_.value_width, config_.head_norm_epsilon, false, config_.head_norm_gain}) {
  xavier_uniform(query_.weight(), random);
  xavier_uniform_parts(key_value_.weight(),
                       {heads_.groups * heads_.key_width, heads_.groups * heads_.value_width}, random);
  xavier_uniform(output_.weight(), random);
  for (Linear* layer : {&query_, &key_value_, &output_}) clear_bias(*layer);
  if (config_.rotary) rotary_.emplace(config_.rotations, heads_.key_width / 4 * 2);
  random.fill_normal(lambda_vectors_, 0, kVectorDeviation);
}

/// Rotates each of the two queries or keys that a head consists of.
Tensor DifferentialAttention::rotated(Tensor x, const RotaryAngles& angles) const {
  if (!rotary_) return x;
  const Shape shape = x.shape();
  const Tensor apart = reshape(x, {shape[0], shape[1], -1, heads_.key_width / 2});
  x = {};
  return reshape(rotary(apart, angles), shape);
}

/// [1]
Tensor DifferentialAttention::lambda() const {
  const Index half = heads_.key_width / 2;
  const Tensor vectors = reshape(lambda_vectors_, {2, 2, half});
  const Tensor products = sum(reshape(slice(vectors, 1, 0, 1) * slice(vectors, 1, 1, 1), {2, half}), {-1});
  const Tensor both = exp(products);
  return slice(both, 0, 0, 1) - slice(both, 0, 1, 1) + config_.lambda_initial;
}

Tensor DifferentialAttention::operator()(const Tensor& query, const Tensor& memory,
                                         const AttentionContext& context) const {
  check_inputs("differential", query, memory, context.cache);
  const bool is_self = !config_.cross && is_same_tensor(query, memory);
  if (rotary_) require_self_attention("differential", "rotary positions are", is_self);
  AttentionOptions options = attention_options(context, dropout_);
  const Index H = heads_.heads, G = heads_.groups;
  options.mask = for_pairs(options.mask, H);
  options.scale = 1 / std::sqrt(static_cast<double>(heads_.key_width / 2));
  const RotaryAngles turns = angles(query, context);
  const Tensor query_bthd = halves_apart(rotated(split_heads(query_(query), H), turns));
  const KeyValueHeads kv = cached_heads(context.cache, is_self, heads_, options, [&] {
    const TensorList parts = split(key_value_(memory), -1, {G * heads_.key_width, G * heads_.value_width});
    return KeyValueHeads{rotated(split_heads(parts[0], G), turns), split_heads(parts[1], G)};
  });
  const Tensor pairs_bthe = scaled_dot_product_attention(query_bthd, kv.key_bsgd, kv.value_bsge, options);
  const Tensor factor = lambda();
  if (context.weights != nullptr) {
    const Axes swapped{0, 2, 1, 3};
    *context.weights = permute(difference(permute(*context.weights, swapped), factor), swapped);
  }
  const Tensor heads_bthe = (1 - config_.lambda_initial) * head_norm_(difference(pairs_bthe, factor));
  return output_(merge_heads(heads_bthe));
}

void DifferentialAttention::visit(ParameterVisitor& visitor) {
  visitor.child("query", query_);
  visitor.child("key_value", key_value_);
  visitor.row_parts("key_value.weight",
                    {heads_.groups * heads_.key_width, heads_.groups * heads_.value_width});
  visitor.parameter("lambda_vectors", lambda_vectors_);
  visitor.child("head_norm", head_norm_);
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
}

void DifferentialAttention::add_cost(const AttentionConfig& config, CostSum& sum) {
  const double C = config.width, H = config.heads, G = config.key_heads(), D = config.key_width,
               E = config.value_width, N = sum.N, M = sum.M;
  sum.projection(N, C, H * D, config.bias);
  sum.projection(M, config.memory_width, G * (D + E), config.bias);
  sum.projection(N, H * E, config.output_width, *config.output_bias);
  sum.attention(2 * H, D, E);
  sum.keeps(N * (C + 2 * H * D + 2 * H * E + H * E) + M * G * (D + E));
  if (sum.call.keys > 0) sum.keeps(M * config.memory_width);
  if (config.rotary) sum.keeps_angles(config, config.key_width / 4 * 2);
  sum.keeps(N * H * E);  // the factor of lambda
  sum.parameters(2 * D + (config.head_norm_gain ? E : 0));
  sum.keeps(N * H * E + 2 * D + 3), sum.keeps_wide(N * H);
  sum.caches(G * (D + E));
}

}  // namespace tapeformer
