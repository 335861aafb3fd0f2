#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>

#include <cmath>
#include <limits>

namespace tapeformer {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

/// `got()` is only asked for when it is needed: building a string would cost every step an allocation.
template <class Text>
void require(bool holds, const char* rule, const Text& got) {
  if (!holds) throw ShapeError(std::string("[") + kOp + "] " + rule + "; got " + got());
}

void check(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  const auto got = [&] {
    return "query=" + query.describe() + ", key=" + key.describe() + ", value=" + value.describe();
  };
  require(query.rank() == 4 && key.rank() == 4 && value.rank() == 4,
          "query must be [B, T, H, D], key [B, S, H, D], value [B, S, H, E]", got);
  require(key.size(0) == query.size(0) && key.size(2) == query.size(2) && key.size(3) == query.size(3),
          "query and key must agree in B, H and D", got);
  require(value.size(0) == key.size(0) && value.size(1) == key.size(1) && value.size(2) == key.size(2),
          "key and value must agree in B, S and H", got);
  const auto check_rows = [&](const char* name, const Tensor& mask, const Tensor& of) {
    if (!mask.defined()) return;
    require(mask.shape() == Shape{of.size(0), of.size(1)}, "a row mask must be [B, length]",
            [&] { return std::string(name) + "=" + mask.describe() + ", " + got(); });
    if (mask.dtype() == DType::boolean) return;
    throw DTypeError(std::string("[") + kOp + "] " + name + " must be bool, true for may attend; got " +
                     mask.describe());
  };
  check_rows("key_mask", options.key_mask, key);
  check_rows("query_mask", options.query_mask, query);
  if (!options.mask.defined()) return;
  const Shape scores{query.size(0), query.size(2), query.size(1), key.size(1)};
  require(broadcast_shapes(kOp, options.mask.shape(), scores) == scores,
          "the mask must broadcast to [B, H, T, S]",
          [&] { return "mask=" + options.mask.describe() + ", " + got(); });
  if (options.mask.dtype() == DType::boolean || options.mask.dtype() == query.dtype()) return;
  throw DTypeError(std::string("[") + kOp + "] the mask must be bool or of the query's type; got mask=" +
                   options.mask.describe() + ", " + got());
}

/// query t may see keys up to t + S - T.
Tensor causal_mask(Index queries, Index keys) {
  const Tensor mask = Tensor::empty({queries, keys}, DType::boolean);
  bool* may = mask.data<bool>();
  for (Index t = 0; t < queries; ++t) {
    for (Index s = 0; s < keys; ++s) may[t * keys + s] = s <= t + keys - queries;
  }
  return mask;
}

/// All boolean masks in one that broadcasts to [B, H, T, S]; undefined when there is none.
Tensor combined_mask(const AttentionOptions& options, Index queries, Index keys) {
  Tensor combined;
  const auto apply = [&](const Tensor& mask) {
    combined = combined.defined() ? logical_and(combined, mask) : mask;
  };
  if (options.causal && queries > 1) apply(causal_mask(queries, keys));
  if (options.key_mask.defined()) apply(options.key_mask.alias({options.key_mask.size(0), 1, 1, keys}));
  if (options.query_mask.defined()) {
    apply(options.query_mask.alias({options.query_mask.size(0), 1, queries, 1}));
  }
  if (options.mask.defined() && options.mask.dtype() == DType::boolean) apply(options.mask);
  return combined;
}

/// x with zeros in the rows that `mask` [B, T] leaves out. What they are multiplied by is exactly zero, so
/// only values that are not finite, or so large that a product overflows, need it; looking costs a pass over
/// the masked rows, and usually saves one over all of x.
Tensor without_masked(const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return x;
  constexpr double kHarmless = 1e15;
  const Index width = x.size(2) * x.size(3);
  const bool* real = mask.data<bool>();
  bool harmful = false;
  dispatch(
      kOp,
      [&](auto, const auto* values) {
        for (Index row = 0; row < mask.elements(); ++row) {
          if (real[row]) continue;
#pragma omp simd reduction(|| : harmful)
          for (Index i = row * width; i < (row + 1) * width; ++i) {
            harmful = harmful || !(std::abs(values[i]) < kHarmless);
          }
        }
      },
      x);
  if (!harmful) return x;
  return where(mask.alias({x.size(0), x.size(1), 1, 1}), x, Tensor::scalar(0, x.dtype()));
}

}  // namespace

Tensor composed_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                          const AttentionOptions& options) {
  check(query, key, value, options);
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(query.size(3)));
  const Tensor query_bthd = without_masked(query, options.query_mask);
  const Tensor key_bshd = without_masked(key, options.key_mask);
  const Tensor value_bshe = without_masked(value, options.key_mask);

  Tensor scores_bhts = matmul(by_head(query_bthd), transposed(by_head(key_bshd)), scale);
  if (options.mask.defined() && options.mask.dtype() != DType::boolean)
    scores_bhts = scores_bhts + options.mask;
  const Tensor may_attend = combined_mask(options, query.size(1), key.size(1));
  if (may_attend.defined()) {
    const Tensor never = Tensor::scalar(-std::numeric_limits<double>::infinity(), query.dtype());
    scores_bhts = where(may_attend, scores_bhts, never);
  }
  const Tensor weights_bhts = softmax(scores_bhts);
  if (options.weights != nullptr) *options.weights = weights_bhts;
  return matmul(dropout(weights_bhts, options.dropout, options.dropout_key), by_head(value_bshe), 1, true);
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  return composed_attention(query, key, value, options);
}

}  // namespace tapeformer
