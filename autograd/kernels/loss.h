#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// The cross-entropy of softmax(logits) [rows, n] against targets smoothed by s: weight 1 - s on the target
/// itself and s / n on every class. Rows whose target is `ignored` do not count. With a softcap c > 0 the
/// logits x count as c tanh(x / c); gradients are those of x.
struct CrossEntropy {
  Index rows = 0, n = 0;
  Index lead = 0;  // logits from one row to the next
  Index ignored = -1;
  double smoothing = 0, softcap = 0;
};

/// losses [rows]: 0 for ignored rows. statistics [rows, 2] of the other rows, for the backward kernel: the
/// maximum of the capped logits (times log2 e for bf16 on a GPU) and their sum of exponentials.
TAPEFORMER_KERNEL(cross_entropy_forward, const CrossEntropy& shape, const std::int32_t* targets,
                  const T* logits, Wide<T>* statistics, double* losses);
/// loss = the sum of losses [rows], in an order that depends only on `rows`, divided by *counted, the number
/// of rows that are not ignored; 0 if there are none. T is f32 or f64.
TAPEFORMER_KERNEL(mean_loss, Index rows, const double* losses, const std::int32_t* counted, T* loss);
/// dlogits = *dloss / *counted * (softmax - smoothed target), with dloss = 1 if it is nullptr. dlogits may be
/// the same memory as the logits.
TAPEFORMER_KERNEL(cross_entropy_backward, const CrossEntropy& shape, const std::int32_t* targets,
                  const std::int32_t* counted, const T* logits, const Wide<T>* statistics,
                  const Wide<T>* dloss, Write<T> dlogits);
/// Forward and backward for dloss = 1: the losses, and dlogits in place of the logits. statistics [rows, 2]
/// is scratch memory.
TAPEFORMER_KERNEL(cross_entropy_with_gradient, const CrossEntropy& shape, const std::int32_t* targets,
                  const std::int32_t* counted, T* logits, Wide<T>* statistics, double* losses);
/// dx = *factor * gradient, for a gradient that was computed before the factor.
TAPEFORMER_KERNEL(scale_gradient, Index count, const Wide<T>* factor, const T* gradient, Write<T> dx);

}  // namespace tapeformer::kernels
