#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// The cross-entropy of softmax(logits) [rows, n] against targets smoothed by s: weight 1 - s on the target
/// itself and s / n on every class. Rows whose target is `ignored` count for nothing.
struct CrossEntropy {
  Index rows = 0, n = 0;
  Index ignored = -1;
  double smoothing = 0;
  Index counted = 0;  // rows that are not ignored
};

/// loss = mean over the counted rows, summed in row order. statistics [rows, 2] gets each row's maximum and
/// sum of exponentials; losses [rows] is room to work in.
template <class T>
void cross_entropy_forward(Cpu, const CrossEntropy& shape, const std::int32_t* targets, const T* logits,
                           T* statistics, double* losses, T* loss);
template <class T>
void cross_entropy_forward(Cuda, const CrossEntropy& shape, const std::int32_t* targets, const T* logits,
                           T* statistics, double* losses, T* loss);
/// dlogits = dloss / counted * (softmax - smoothed target); dlogits may be the logits' own memory.
template <class T>
void cross_entropy_backward(Cpu, const CrossEntropy& shape, const std::int32_t* targets, const T* logits,
                            const T* statistics, const T* dloss, Write<T> dlogits);
template <class T>
void cross_entropy_backward(Cuda, const CrossEntropy& shape, const std::int32_t* targets, const T* logits,
                            const T* statistics, const T* dloss, Write<T> dlogits);
/// dx = factor * gradient, for a gradient that was known before the factor.
template <class T>
void scale_gradient(Cpu, Index count, T factor, const T* gradient, Write<T> dx);
template <class T>
void scale_gradient(Cuda, Index count, T factor, const T* gradient, Write<T> dx);

}  // namespace tapeformer::kernels
