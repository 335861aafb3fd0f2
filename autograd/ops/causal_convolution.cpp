#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/causal_convolution.h>
#include <tapeformer/autograd/kernels/normalization.h>
#include <tapeformer/autograd/kernels/reduce.h>
#include <tapeformer/autograd/ops/causal_convolution.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

namespace tapeformer {
namespace {

kernels::Convolution check_convolution(const Tensor& x, const Tensor& weight) {
  const Index width = x.rank() == 3 ? x.size(2) : 0;
  const Index taps = width > 0 ? weight.elements() / width : 0;
  require(taps > 0 && (weight.shape() == Shape{taps, width} || weight.shape() == Shape{taps * width}),
          "causal_convolution", "x must be [B, T, C], C at least 1, and weight [K, C] or [K C], K at least 1",
          {{"x", x}, {"weight", weight}}, "a weight with as many columns as x");
  return {x.size(0), x.size(1), width, taps};
}

/// The forward pass in plain operations.
Tensor composed(const kernels::Convolution& s, const Tensor& x, const Tensor& weight) {
  const Tensor rows = reshape(weight, {s.taps, s.width});
  Tensor y = x;
  for (Index j = 0; j < std::min(s.taps, s.length); ++j)
    y = y + slice(rows, 0, j, 1) * pad(slice(x, 1, 0, s.length - j), 1, j, s.length);
  return y;
}

}  // namespace

Tensor causal_convolution(const Tensor& x, const Tensor& weight) {
  const kernels::Convolution sizes = check_convolution(x, weight);
  const Tensor y = Tensor::empty_like(x);
  dispatch("causal_convolution", operands(x, weight, y), [&](auto on, auto* px, auto* pw, auto* py) {
    kernels::causal_convolution_forward(on, sizes, px, pw, py);
  });
  return record_fused(
      "causal_convolution", {x, weight}, {x, weight}, y,
      [=](const Tensor& dy, const Gradients& into) {
        dispatch("causal_convolution", operands(x, weight, dy, into[0], wide(into[1])),
                 [&](auto on, auto* px, auto* pw, auto* pd, auto dx, auto dw) {
                   const Index parts = kernels::normalize_parts(on, sizes.rows(), sizes.width);
                   const Index width = sizes.taps * sizes.width;
                   const PartialSums sums(dw, bool(dw), {parts, width}, x.device());
                   kernels::causal_convolution_backward(on, sizes, px, pw, pd, sums.address, dx);
                   if (dw) kernels::reduce_sum(on, 1, parts, width, sums.address, dw);
                 });
      },
      [=] { return composed(sizes, x, weight); });
}

}  // namespace tapeformer
