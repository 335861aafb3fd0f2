#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/xtensor.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/formulas.h>
#include <tapeformer/tests/reference/threads.h>

#include <xtensor-blas/xlinalg.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xvectorize.hpp>

namespace tapeformer {
namespace {

using Array = xt::xarray<double>;

/// The rows [R, N] of x [..., N].
Array rows_of(const Tensor& x) {
  Array rows = as_xtensor<double>(x.to(DType::f64));
  rows.reshape(std::vector<std::ptrdiff_t>{-1, x.size(-1)});
  return rows;
}
Tensor tensor_of(const Array& rows, const Shape& shape) { return from_xtensor(rows).alias(shape); }
/// [R, 1]
Array sum_rows(const Array& x) { return xt::sum(x, {1}, xt::keep_dims); }
Array mean_rows(const Array& x) { return xt::mean(x, {1}, xt::keep_dims); }

}  // namespace

OpResult softmax_formula(const Tensor& inputs, const Tensor& seed, bool logarithm) {
  const Array x = rows_of(inputs), dy = rows_of(seed), p = xt::exp(x) / sum_rows(xt::exp(x));
  const Array y = logarithm ? Array(xt::log(p)) : p;
  const Array dx = logarithm ? Array(dy - p * sum_rows(dy)) : Array(p * (dy - sum_rows(p * dy)));
  return {tensor_of(y, inputs.shape()), {tensor_of(dx, inputs.shape())}};
}

OpResult norm_formula(const Tensor& inputs, const Tensor& weight, const Tensor& bias, const Tensor& seed,
                      bool centred, double epsilon) {
  const double centre = centred ? 1 : 0;
  const Array x = rows_of(inputs), w = as_xtensor<double>(weight), dy = rows_of(seed), g = dy * w;
  const Array from_mean = x - centre * mean_rows(x);
  const Array deviation = xt::sqrt(mean_rows(xt::square(from_mean)) + epsilon), xhat = from_mean / deviation;
  const Array dx = (g - centre * mean_rows(g) - xhat * mean_rows(g * xhat)) / deviation;
  return {
      tensor_of(xhat * w + as_xtensor<double>(bias), inputs.shape()),
      {tensor_of(dx, inputs.shape()), from_xtensor(xt::sum(dy * xhat, {0})), from_xtensor(xt::sum(dy, {0}))}};
}

OpResult cross_entropy_formula(const Tensor& logits, const Tensor& targets,
                               const CrossEntropyOptions& options, double dloss) {
  const double cap = options.softcap, classes = static_cast<double>(logits.size(-1));
  const Array x = rows_of(logits), z = cap > 0 ? Array(cap * xt::tanh(x / cap)) : x;
  const Array slope = cap > 0 ? Array(1 - xt::square(z / cap)) : xt::ones_like(x);
  const Array target = as_xtensor<std::int32_t>(targets.alias({targets.elements(), 1}));
  const Array counts = xt::cast<double>(xt::not_equal(target, static_cast<double>(options.ignored)));
  const Array q = options.smoothing / classes +
                  (1 - options.smoothing) * xt::cast<double>(xt::equal(target, xt::arange(classes)));
  const Array p = xt::exp(z) / sum_rows(xt::exp(z)), share = counts / xt::sum(counts)();
  const Array dx = dloss * share * (p - q) * slope;
  return {Tensor::scalar(-xt::sum(share * q * xt::log(p))(), DType::f64), {tensor_of(dx, logits.shape())}};
}

Tensor reduction_formula(const std::string& name, const Tensor& x, const std::vector<int>& over) {
  const std::vector<std::size_t> axes(over.begin(), over.end());
  const Array from = as_xtensor<double>(x);
  if (name == "sum") return from_xtensor(xt::sum(from, axes));
  if (name == "mean") return from_xtensor(xt::mean(from, axes));
  return from_xtensor(xt::variance(from, axes, /*ddof=*/1));
}

Tensor with_singular_values(const Tensor& x, const std::function<double(double)>& f) {
  const Threads one(1);  // for LAPACK, as for products: see kernels/cpu/matmul.cpp
  const auto [u, s, vt] = xt::linalg::svd(as_xtensor<double>(x), /*full_matrices=*/false);
  const Array scaled = u * xt::vectorize(f)(s);
  return from_xtensor(xt::linalg::dot(scaled, vt));
}

}  // namespace tapeformer
