#pragma once

#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// Softmax, or its logarithm, of rows of n values; rows of only minus infinities give zeros, or stay (log).
TAPEFORMER_KERNEL(softmax_forward, bool is_log, Index rows, Index n, const T* x, T* y);
/// dx = y * (dy - sum(y * dy)); for the logarithm, dx = dy - exp(y) * sum(dy).
TAPEFORMER_KERNEL(softmax_backward, bool is_log, Index rows, Index n, const T* y, const T* dy, Write<T> dx);

}  // namespace tapeformer::kernels
