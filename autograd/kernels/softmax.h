#pragma once

#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// Softmax, or its logarithm, of rows of n values each; a row of only minus infinities becomes zeros.
template <class T>
void softmax_forward(Cpu, bool is_log, Index rows, Index n, const T* x, T* y);
template <class T>
void softmax_forward(Cuda, bool is_log, Index rows, Index n, const T* x, T* y);
/// dx = y * (dy - sum(y * dy)); for the logarithm, dx = dy - exp(y) * sum(dy).
template <class T>
void softmax_backward(Cpu, bool is_log, Index rows, Index n, const T* y, const T* dy, Write<T> dx);
template <class T>
void softmax_backward(Cuda, bool is_log, Index rows, Index n, const T* y, const T* dy, Write<T> dx);

}  // namespace tapeformer::kernels
