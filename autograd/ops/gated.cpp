#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/gated.h>
#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>

namespace tapeformer {

Tensor gated(Unary f, const Tensor& x) {
  if (x.rank() < 1 || x.size(-1) % 2 != 0) {
    throw ShapeError("[gated] the last axis must hold two halves of one size; got x=" + x.describe());
  }
  const Index width = x.size(-1) / 2, rows = x.shape().elements(0, x.rank() - 1);
  Shape shape = x.shape();
  shape.set(-1, width);
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  dispatch(
      "gated", [&](auto on, auto* px, auto* py) { kernels::gated_forward(on, f, rows, width, px, py); }, x,
      y);
  return record_fused(
      "gated", {x}, {x}, y,
      [f, x, rows, width](const Tensor& dy, const Gradients& into) {
        dispatch(
            "gated",
            [&](auto on, auto* px, auto* d, auto dx) {
              kernels::gated_backward(on, f, rows, width, px, d, dx);
            },
            x, dy, into[0]);
      },
      [f, x, width] { return unary(f, slice(x, -1, 0, width)) * slice(x, -1, width, width); });
}

}  // namespace tapeformer
