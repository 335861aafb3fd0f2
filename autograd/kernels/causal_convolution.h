#pragma once

#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// x and y [batch, length, width], weight [taps, width].
struct Convolution {
  Index batch = 0, length = 0, width = 0, taps = 0;
  TAPEFORMER_HOST_DEVICE Index rows() const { return batch * length; }
};

/// y[t] = x[t] + sum over j of weight[j] x[t - j], for each sequence and column, where j is at most t.
TAPEFORMER_KERNEL(causal_convolution_forward, const Convolution& sizes, const T* x, const T* weight, T* y);

/// `partials` holds taps * width sums for each of normalize_parts(rows, width) parts, which added up are
/// dweight; nullptr if that is not needed.
TAPEFORMER_KERNEL(causal_convolution_backward, const Convolution& sizes, const T* x, const T* weight,
                  const T* dy, Wide<T>* partials, Write<T> dx);

}  // namespace tapeformer::kernels
