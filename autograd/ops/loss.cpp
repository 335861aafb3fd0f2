#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/loss.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>

#include <algorithm>

namespace tapeformer {
namespace {

kernels::CrossEntropy check(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  if (logits.rank() != targets.rank() + 1 ||
      !std::equal(targets.shape().begin(), targets.shape().end(), logits.shape().begin())) {
    throw ShapeError("[cross_entropy] targets must have logits' shape without the last axis; got logits=" +
                     logits.describe() + ", targets=" + targets.describe());
  }
  if (!(options.smoothing >= 0 && options.smoothing <= 1)) {
    throw ShapeError("[cross_entropy] smoothing must be in [0, 1]; got " + std::to_string(options.smoothing));
  }
  kernels::CrossEntropy shape;
  shape.rows = targets.elements(), shape.n = logits.size(-1);
  shape.ignored = options.ignored, shape.smoothing = options.smoothing;
  shape.counted = check_ids("cross_entropy", "targets", targets, shape.n, options.ignored);
  return shape;
}

/// The forward again in plain operations. Ignored rows are filled with zeros and weigh nothing.
Tensor composed(const kernels::CrossEntropy& shape, const Tensor& logits, const Tensor& targets) {
  const Tensor picks = Tensor::empty({shape.rows, 1}, DType::i32);
  const Tensor ignored = Tensor::empty({shape.rows, 1}, DType::boolean);
  for (Index row = 0; row < shape.rows; ++row) {
    const std::int32_t target = targets.data<std::int32_t>()[row];
    ignored.data<bool>()[row] = target == shape.ignored;
    picks.data<std::int32_t>()[row] = target == shape.ignored ? 0 : target;
  }
  const Tensor rows = masked_fill(reshape(logits, Shape{shape.rows, shape.n}), ignored, 0);
  const Tensor log_p = log_softmax(rows);
  const double n = static_cast<double>(shape.n),
               counted = static_cast<double>(std::max<Index>(shape.counted, 1));
  const Tensor likelihood = affine(gather(log_p, 1, picks), 1 - shape.smoothing, 0) +
                            affine(sum(log_p, {1}, true), shape.smoothing / n, 0);
  return affine(sum(masked_fill(likelihood, ignored, 0)), -1 / counted, 0);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const kernels::CrossEntropy shape = check(logits, targets, options);
  const std::int32_t* target = targets.data<std::int32_t>();
  const Tensor loss = Tensor::empty({}, logits.dtype(), logits.device());
  const Tensor statistics = Tensor::empty({shape.rows, 2}, logits.dtype(), logits.device());
  const Tensor losses = Tensor::empty({shape.rows}, DType::f64, logits.device());
  double* each = losses.data<double>();
  dispatch(
      "cross_entropy",
      [&](auto on, auto* x, auto* kept, auto* y) {
        kernels::cross_entropy_forward(on, shape, target, x, kept, each, y);
      },
      logits, statistics, loss);
  return record_fused(
      "cross_entropy", {logits}, {logits, targets, statistics}, loss,
      [=](const Tensor& dy, const Gradients& into) {
        dispatch(
            "cross_entropy",
            [&](auto on, auto* x, auto* kept, auto* d, auto dx) {
              kernels::cross_entropy_backward(on, shape, targets.data<std::int32_t>(), x, kept, d, dx);
            },
            logits, statistics, dy, into[0]);
      },
      [=] { return composed(shape, logits, targets); });
}

}  // namespace tapeformer
