#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/softmax.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape.h>

#include <algorithm>
#include <utility>

namespace tapeformer {
namespace {

/// Softmax of the last axis, as `rows` rows of n values. dispatch() calls the lambda with the arguments that
/// follow it as typed pointers: `on` stands for the CPU or a GPU, and `to`, the destination of the gradient,
/// is a Write, which is assigned or added to. A recorded pass needs operations in place of the kernel.
Tensor softmax_last(const Tensor& x) {
  const Index n = x.size(-1), rows = x.elements() / std::max<Index>(n, 1);
  const Tensor y = Tensor::empty_like(x);
  dispatch(
      "softmax", [&](auto on, auto* px, auto* py) { kernels::softmax_forward(on, rows, n, px, py); }, x, y);
  return record("softmax", {x}, {y}, y, [y, rows, n](const Tensor& dy, const Gradients& into) {
    if (into.recorded()) {
      into[0] += y * (dy - sum(y * dy, {-1}, true));
      return;
    }
    dispatch(
        "softmax",
        [&](auto on, auto* py, auto* from, auto to) { kernels::softmax_backward(on, rows, n, py, from, to); },
        y, dy, into[0]);
  });
}

Tensor log_softmax_last(const Tensor& x) {
  const Index n = x.size(-1), rows = x.elements() / std::max<Index>(n, 1);
  const Tensor y = Tensor::empty_like(x);
  dispatch(
      "log_softmax", [&](auto on, auto* px, auto* py) { kernels::log_softmax_forward(on, rows, n, px, py); },
      x, y);
  return record("log_softmax", {x}, {y}, y, [y, rows, n](const Tensor& dy, const Gradients& into) {
    if (into.recorded()) {
      into[0] += dy - exp(y) * sum(dy, {-1}, true);
      return;
    }
    dispatch(
        "log_softmax",
        [&](auto on, auto* py, auto* from, auto to) {
          kernels::log_softmax_backward(on, rows, n, py, from, to);
        },
        y, dy, into[0]);
  });
}

/// Applies `last`, a function of the last axis, to another axis.
Tensor along(int axis, const Tensor& x, Tensor (*last)(const Tensor&)) {
  const int at = x.shape().checked_axis(axis);
  if (at == x.rank() - 1) return last(x);
  Axes swapped;
  for (int i = 0; i < x.rank(); ++i) swapped.push_back(i);
  std::swap(swapped[static_cast<std::size_t>(at)], swapped.back());
  return permute(last(permute(x, swapped)), swapped);
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) { return along(axis, x, softmax_last); }

Tensor log_softmax(const Tensor& x, int axis) { return along(axis, x, log_softmax_last); }

}  // namespace tapeformer
