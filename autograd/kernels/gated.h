#pragma once

#include <tapeformer/autograd/kernels/elementwise.h>

namespace tapeformer::kernels {

/// y = f(a) * b, x [rows, 2 width] holding a and b side by side, y [rows, width].
template <class T>
void gated_forward(Cpu, Unary f, Index rows, Index width, const T* x, T* y);
template <class T>
void gated_forward(Cuda, Unary f, Index rows, Index width, const T* x, T* y);
/// dx = [dy * b * f'(a), dy * f(a)]
template <class T>
void gated_backward(Cpu, Unary f, Index rows, Index width, const T* x, const T* dy, Write<T> dx);
template <class T>
void gated_backward(Cuda, Unary f, Index rows, Index width, const T* x, const T* dy, Write<T> dx);

}  // namespace tapeformer::kernels
