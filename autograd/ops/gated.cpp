#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/gated.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>

#include <limits>

namespace tapeformer {
namespace {

Index width_of_half(const char* op, const Tensor& x) {
  require(x.rank() > 0 && x.size(-1) % 2 == 0, op, "the last axis must hold two halves of equal size",
          {{"x", x}});
  return x.size(-1) / 2;
}

}  // namespace

Tensor gated(Unary f, const Tensor& x) {
  const Index width = width_of_half("gated", x), rows = x.shape().elements(0, x.rank() - 1);
  Shape shape = x.shape();
  shape.set(-1, width);
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  dispatch("gated", operands(x, y),
           [&](auto on, auto* px, auto* py) { kernels::gated_forward(on, f, rows, width, px, py); });
  return record_fused(
      "gated", {x}, {x}, y,
      [f, x, rows, width](const Tensor& dy, const Gradients& into) {
        dispatch("gated", operands(x, dy, into[0]), [&](auto on, auto* px, auto* d, auto dx) {
          kernels::gated_backward(on, f, rows, width, px, d, dx);
        });
      },
      [f, x, width] { return unary(f, slice(x, -1, 0, width)) * slice(x, -1, width, width); });
}

Tensor gated_within(double limit, double alpha, const Tensor& x) {
  const Index width = width_of_half("gated_within", x);
  const Tensor a = slice(x, -1, 0, width), b = slice(x, -1, width, width);
  const Tensor gate = clamp(a, -std::numeric_limits<double>::infinity(), limit), up = clamp(b, -limit, limit);
  return (up + 1) * gate * sigmoid(gate * alpha);
}

}  // namespace tapeformer
