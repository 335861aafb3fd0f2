#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/normalization.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>

namespace tapeformer {
namespace {

/// The forward pass in plain operations.
Tensor composed(const Normalization& norm, const Tensor& x) {
  const Tensor deviation = norm.centred ? x - mean(x, {-1}, true) : x;
  Tensor y = deviation / sqrt(mean(deviation * deviation, {-1}, true) + norm.epsilon);
  if (norm.weight.defined()) y = y * norm.weight;
  return norm.bias.defined() ? y + norm.bias : y;
}

}  // namespace

void check_normalization(const Normalization& norm, const Tensor& x) {
  const auto fits = [&](const Tensor& w) { return !w.defined() || w.shape() == Shape{x.size(-1)}; };
  require(x.rank() > 0 && fits(norm.weight) && fits(norm.bias), norm.op,
          "weight and bias must have the size of x's last axis",
          {{"x", x}, {"weight", norm.weight}, {"bias", norm.bias}});
}

Tensor normalize(const Normalization& norm, const Tensor& x) {
  check_normalization(norm, x);
  const Index n = x.size(-1), rows = x.shape().elements(0, x.rank() - 1);
  const Tensor y = Tensor::empty_like(x);
  const Tensor rstd = Tensor::empty({rows}, wide(x.dtype()), x.device());
  const Tensor mean = norm.centred ? Tensor::empty_like(rstd) : Tensor();
  dispatch(norm.op, operands(x, norm.weight, norm.bias, y, wide(mean), wide(rstd)),
           [&](auto on, auto* px, auto* pw, auto* pb, auto* py, auto* pm, auto* pr) {
             kernels::normalize_forward(on, rows, n, norm.centred, norm.epsilon, px, {}, pw, pb, py, pm, pr);
           });
  return record_fused(
      norm.op, {x, norm.weight, norm.bias}, {x, norm.weight, mean, rstd}, y,
      [=](const Tensor& dy, const Gradients& into) {
        dispatch(
            norm.op,
            operands(x, norm.weight, wide(mean), wide(rstd), dy, into[0], wide(into[1]), wide(into[2])),
            [&](auto on, auto* px, auto* pw, auto* pm, auto* pr, auto* pd, auto dx, auto dw, auto db) {
              const PartialSums sums(dw, dw || db, {kernels::normalize_parts(on, rows, n), 2, n}, x.device());
              kernels::normalize_backward(on, rows, n, norm.centred, px, pw, pm, pr, pd, sums.address, dx, {},
                                          dw, db);
            });
      },
      [norm, x] { return composed(norm, x); });
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  return normalize({"layer_norm", weight, bias, true, epsilon}, x);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  return normalize({"rms_norm", weight, {}, false, epsilon}, x);
}

namespace {

kernels::HeadNorms check_heads(const Tensor& x, Index queries, Index keys, const Tensor& query_weight,
                               const Tensor& key_weight, double epsilon) {
  const bool fits = x.rank() > 0 && queries >= 0 && keys >= 0 && query_weight.rank() == 1 &&
                    query_weight.shape() == key_weight.shape() && query_weight.size(0) > 0 &&
                    queries <= x.size(-1) && keys <= x.size(-1) / query_weight.size(0) - queries;
  require(fits, "packed_head_norms", "rows must begin with heads of the weights' size",
          {{"x", x},
           {"queries", queries},
           {"keys", keys},
           {"query_weight", query_weight},
           {"key_weight", key_weight}});
  const Index rows = x.shape().elements(0, x.rank() - 1);
  return {rows, x.size(-1), query_weight.size(0), queries, keys, epsilon};
}

/// The forward pass in plain operations.
Tensor composed_heads(const kernels::HeadNorms& s, const Tensor& x, const Tensor& query_weight,
                      const Tensor& key_weight) {
  const auto normed = [&](Index first, Index heads, const Tensor& weight) {
    const Tensor part = reshape(slice(x, -1, first * s.n, heads * s.n), {s.rows, heads, s.n});
    return reshape(rms_norm(part, weight, s.epsilon), {s.rows, heads * s.n});
  };
  const Tensor rest = slice(x, -1, s.heads() * s.n, s.width - s.heads() * s.n);
  return reshape(concat({normed(0, s.queries, query_weight), normed(s.queries, s.keys, key_weight),
                         reshape(rest, {s.rows, rest.size(-1)})},
                        1),
                 x.shape());
}

}  // namespace

Tensor packed_head_norms(const Tensor& x, Index queries, Index keys, const Tensor& query_weight,
                         const Tensor& key_weight, double epsilon) {
  const kernels::HeadNorms sizes = check_heads(x, queries, keys, query_weight, key_weight, epsilon);
  const Tensor y = Tensor::empty_like(x);
  const Tensor rstd = Tensor::empty({sizes.rows, sizes.heads()}, wide(x.dtype()), x.device());
  dispatch("packed_head_norms", operands(x, query_weight, key_weight, y, wide(rstd)),
           [&](auto on, auto* px, auto* pq, auto* pk, auto* py, auto* pr) {
             kernels::head_norms_forward(on, sizes, px, pq, pk, py, pr);
           });
  return record_fused(
      "packed_head_norms", {x, query_weight, key_weight}, {x, query_weight, key_weight, rstd}, y,
      [=](const Tensor& dy, const Gradients& into) {
        dispatch("packed_head_norms",
                 operands(x, query_weight, key_weight, wide(rstd), dy, into[0], wide(into[1]), wide(into[2])),
                 [&](auto on, auto* px, auto* pq, auto* pk, auto* pr, auto* pd, auto dx, auto dq, auto dk) {
                   const Index parts = kernels::normalize_parts(on, sizes.rows, sizes.width);
                   const PartialSums sums(dq, dq || dk, {parts, 2, sizes.n}, x.device());
                   kernels::head_norms_backward(on, sizes, px, pq, pk, pr, pd, sums.address, dx, dq, dk);
                 });
      },
      [=] { return composed_heads(sizes, x, query_weight, key_weight); });
}

}  // namespace tapeformer
