#pragma once

#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// Rows of n values each; a row of only minus infinities becomes zeros.
template <class T>
void softmax_forward(Cpu, Index rows, Index n, const T* x, T* y);
template <class T>
void softmax_forward(Cuda, Index rows, Index n, const T* x, T* y);
/// dx = y * (dy - sum(y * dy))
template <class T>
void softmax_backward(Cpu, Index rows, Index n, const T* y, const T* dy, Write<T> dx);
template <class T>
void softmax_backward(Cuda, Index rows, Index n, const T* y, const T* dy, Write<T> dx);

template <class T>
void log_softmax_forward(Cpu, Index rows, Index n, const T* x, T* y);
template <class T>
void log_softmax_forward(Cuda, Index rows, Index n, const T* x, T* y);
/// dx = dy - exp(y) * sum(dy)
template <class T>
void log_softmax_backward(Cpu, Index rows, Index n, const T* y, const T* dy, Write<T> dx);
template <class T>
void log_softmax_backward(Cuda, Index rows, Index n, const T* y, const T* dy, Write<T> dx);

}  // namespace tapeformer::kernels
