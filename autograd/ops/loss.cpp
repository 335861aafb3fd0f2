#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/loss.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

namespace tapeformer {
namespace {

void check(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  if (logits.rank() != targets.rank() + 1 ||
      !std::equal(targets.shape().begin(), targets.shape().end(), logits.shape().begin())) {
    throw ShapeError("[cross_entropy] targets must have logits' shape without the last axis; got logits=" +
                     logits.describe() + ", targets=" + targets.describe());
  }
  if (!(options.smoothing >= 0 && options.smoothing <= 1)) {
    throw ShapeError("[cross_entropy] smoothing must be in [0, 1]; got " + std::to_string(options.smoothing));
  }
  if (!(options.softcap >= 0)) {
    throw ShapeError("[cross_entropy] softcap must not be negative; got " + std::to_string(options.softcap));
  }
  require_same_device("cross_entropy", "targets", targets, logits);
}

/// The forward again in plain operations. Ignored rows are filled with zeros and have no weight.
Tensor composed(const kernels::CrossEntropy& shape, const Tensor& logits, const Tensor& targets,
                const Tensor& counts) {
  const Tensor picks = Tensor::empty({shape.rows, 1}, DType::i32, Device::cpu());
  const Tensor ignored = Tensor::empty({shape.rows, 1}, DType::boolean, Device::cpu());
  const Tensor here = targets.to(Device::cpu());
  for (Index row = 0; row < shape.rows; ++row) {
    const std::int32_t target = here.data<std::int32_t>()[row];
    ignored.data<bool>()[row] = target == shape.ignored;
    picks.data<std::int32_t>()[row] = target == shape.ignored ? 0 : target;
  }
  const Device device = logits.device();
  const Tensor skipped = ignored.to(device);
  const Tensor uncapped = cast(logits, wide(logits.dtype()));
  const Tensor wide_logits = shape.softcap > 0 ? softcap(uncapped, shape.softcap) : uncapped;
  const Tensor rows = masked_fill(reshape(wide_logits, Shape{shape.rows, shape.n}), skipped, 0);
  const Tensor log_p = log_softmax(rows);
  const double n = static_cast<double>(shape.n), counted = std::max(counts.item(), 1.0);
  const Tensor likelihood = affine(gather(log_p, 1, picks.to(device)), 1 - shape.smoothing, 0) +
                            affine(sum(log_p, {1}, true), shape.smoothing / n, 0);
  return affine(sum(masked_fill(likelihood, skipped, 0)), -1 / counted, 0);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  check(logits, targets, options);
  kernels::CrossEntropy shape;
  shape.rows = targets.elements(), shape.n = shape.lead = logits.size(-1);
  shape.ignored = options.ignored, shape.smoothing = options.smoothing, shape.softcap = options.softcap;
  const Tensor counted = check_ids("cross_entropy", "targets", targets, shape.n, options.ignored);

  const DType type = wide(logits.dtype());
  const Device device = logits.device();
  const Tensor loss = Tensor::empty({}, type, device),
               statistics = Tensor::empty({shape.rows, 2}, type, device),
               losses = Tensor::empty({shape.rows}, DType::f64, device);
  dispatch(
      "cross_entropy",
      [&](auto on, auto* x, auto* kept, auto* y) {
        double* each = losses.address<double>();
        kernels::cross_entropy_forward(on, shape, targets.address<std::int32_t>(), x, kept, each);
        kernels::mean_loss(on, shape.rows, each, counted.address<std::int32_t>(), y);
      },
      logits, wide(statistics), wide(loss));
  return record_fused(
      "cross_entropy", {logits}, {logits, targets, counted, statistics}, loss,
      [=](const Tensor& dy, const Gradients& into) {
        dispatch(
            "cross_entropy",
            [&](auto on, auto* x, auto* kept, auto* d, auto dx) {
              kernels::cross_entropy_backward(on, shape, targets.address<std::int32_t>(),
                                              counted.address<std::int32_t>(), x, kept, d, dx);
            },
            logits, wide(statistics), wide(dy), into[0]);
      },
      [=] { return composed(shape, logits, targets, counted); });
}

}  // namespace tapeformer
