#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/softmax.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <utility>

namespace tapeformer {
namespace {

/// Softmax over the last axis of [rows, n], or its logarithm. dispatch() picks device and type: it calls the
/// lambda with a device tag (`on`) and one typed pointer for each operand. A gradient slot such as into[0]
/// arrives as a Write: the pointer, and whether to assign or to add. In a recorded pass (second derivatives)
/// the backward uses operations instead of the kernel.
Tensor softmax_last(const char* op, bool is_log, const Tensor& x) {
  const Index n = x.size(-1), rows = x.elements() / std::max<Index>(n, 1);
  const Tensor y = Tensor::empty_like(x);
  dispatch(op, operands(x, y),
           [&](auto on, auto* px, auto* py) { kernels::softmax_forward(on, is_log, rows, n, px, py); });
  return record(op, {x}, {y}, y, [=](const Tensor& dy, const Gradients& into) {
    if (into.recorded()) {
      into[0] += is_log ? dy - exp(y) * sum(dy, {-1}, true) : y * (dy - sum(y * dy, {-1}, true));
      return;
    }
    dispatch(op, operands(y, dy, into[0]), [&](auto on, auto* py, auto* from, auto to) {
      kernels::softmax_backward(on, is_log, rows, n, py, from, to);
    });
  });
}

/// Another axis becomes the last one, and is moved back.
Tensor softmax_along(int axis, const char* op, bool is_log, const Tensor& x) {
  const int at = x.shape().checked_axis(axis);
  if (at == x.rank() - 1) return softmax_last(op, is_log, x);
  Axes swapped;
  for (int i = 0; i < x.rank(); ++i) swapped.push_back(i);
  std::swap(swapped[static_cast<std::size_t>(at)], swapped.back());
  return permute(softmax_last(op, is_log, permute(x, swapped)), swapped);
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) { return softmax_along(axis, "softmax", false, x); }

Tensor log_softmax(const Tensor& x, int axis) { return softmax_along(axis, "log_softmax", true, x); }

}  // namespace tapeformer
