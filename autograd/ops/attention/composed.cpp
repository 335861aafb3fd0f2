#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/autograd/ops/attention/visibility.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/ops/tensor_math.h>
#include <tapeformer/autograd/tape/tape.h>

#include <limits>

namespace tapeformer {
namespace {

/// x with zeros in the rows that `mask` [B, T, H] or [B, T, 1] hides, and in its gradient: they may hold
/// anything, and their factors are exactly zero.
Tensor without_masked(const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return x;
  return where(mask.alias({x.size(0), x.size(1), mask.size(2), 1}), x, Tensor::scalar_like(x, 0));
}

/// The function of the scores, and the relative bias. Scores of masked pairs, which may be infinite, must not
/// reach the parameter's gradient.
Tensor modified(const Tensor& scores_bhts, const Tensor& may_attend, const AttentionOptions& options) {
  const DType type = scores_bhts.dtype();
  const Index S = scores_bhts.size(3);
  Tensor modified_bhts = scores_bhts;
  if (options.score_function != ScoreFunction::none) {
    const Tensor parameter = cast(options.score_parameter, type);
    if (may_attend.defined())
      modified_bhts = where(may_attend, scores_bhts, Tensor::scalar_like(scores_bhts, 0));
    kernels::with_function(options.score_function, [&](auto function) {
      modified_bhts = function.value(modified_bhts, reshape(parameter, Shape{parameter.elements(), 1, 1}));
    });
  }
  if (!options.relative_bias.defined()) return modified_bhts;
  const Tensor positions =
      query_positions(options, scores_bhts.size(0), scores_bhts.size(2), S, scores_bhts.device());
  return modified_bhts + relative_pairs(cast(options.relative_bias, type), positions, S);
}

/// A sink is one more key, whose weight is left out.
Tensor softmax_with_sinks(const Tensor& scores_bhts, const Tensor& sinks) {
  if (!sinks.defined()) return softmax(scores_bhts);
  const Index B = scores_bhts.size(0), H = scores_bhts.size(1), T = scores_bhts.size(2);
  const Tensor sinks_1h11 = reshape(cast(sinks, scores_bhts.dtype()), Shape{1, H, 1, 1});
  const Tensor weights = softmax(concat({scores_bhts, broadcast_to(sinks_1h11, {B, H, T, 1})}, 3));
  return slice(weights, 3, 0, scores_bhts.size(3));
}

/// The conjunction of a and b; an undefined one allows everything.
Tensor both(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? logical_and(a, b) : a;
}

}  // namespace

Tensor repeated_heads(const Tensor& x, Index heads) {
  const Index B = x.size(0), S = x.size(1), G = x.size(2), D = x.size(3);
  if (heads == G) return x;
  const Tensor repeats = broadcast_to(reshape(x, Shape{B, S, G, 1, D}), {B, S, G, heads / G, D});
  return reshape(repeats, Shape{B, S, heads, D});
}

Tensor composed_attention_of(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options, const AttentionScores& scores) {
  const Index B = query.size(0), T = query.size(1), H = query.size(2), S = key.size(1);
  const VisibleKeys visible = visible_keys(options, B, T, S, query.device());
  Tensor may_attend = visible_pairs(visible, S);
  if (options.key_mask.defined()) may_attend = both(may_attend, options.key_mask.alias({B, 1, 1, S}));
  const Tensor left_in = pairs_left_in(options.mask);
  may_attend = both(may_attend, left_in);
  SeenRows seen;
  if (left_in.defined())
    seen = seen_rows(may_attend, {B, H, T, S}, key.size(2));
  else if (may_attend.defined())  // the same for all heads
    seen = seen_rows(may_attend, {B, 1, T, S}, 1);
  const Tensor query_bthd = without_masked(query, seen.queries);
  const Tensor key_bshd = repeated_heads(without_masked(key, seen.keys), H);
  const Tensor value_bshe = repeated_heads(without_masked(value, seen.keys), H);

  Tensor scores_bhts = modified(scores(query_bthd, key_bshd), may_attend, options);
  if (options.mask.defined() && options.mask.dtype() != DType::boolean) {
    scores_bhts = scores_bhts + cast(options.mask, query.dtype());
  }
  if (may_attend.defined()) {
    const Tensor never = Tensor::scalar_like(query, -std::numeric_limits<double>::infinity());
    scores_bhts = where(may_attend, scores_bhts, never);
  }
  const Tensor weights_bhts = options.weighting == AttentionWeighting::sigmoid
                                  ? sigmoid(scores_bhts)
                                  : softmax_with_sinks(scores_bhts, options.sinks);
  if (options.weights != nullptr) *options.weights = weights_bhts;
  const Tensor kept_bhts = dropout(weights_bhts, options.dropout, options.dropout_key);
  return without_masked(matmul(kept_bhts, by_head(value_bshe), 1, true), seen.queries);
}

Tensor composed_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                          const AttentionOptions& options) {
  constexpr const char* kOp = "composed_attention";
  check_attention(kOp, query, key, value, options);
  require(options.block_size == 0, kOp, "the choice of blocks is not composed",
          {{"block_size", options.block_size}}, "scaled_dot_product_attention() with weights");
  return composed_attention_of(query, key, value, options,
                               [&](const Tensor& query_bthd, const Tensor& key_bshd) {
                                 return matmul(by_head(query_bthd), transposed(by_head(key_bshd)),
                                               attention_scale(options, query.size(3)));
                               });
}

}  // namespace tapeformer
