#pragma once

#include <tapeformer/autograd/kernels/elementwise.h>

namespace tapeformer::kernels {

/// y = f(a) * b, x [rows, 2 width] holding a and b side by side, y [rows, width].
TAPEFORMER_KERNEL(gated_forward, Unary f, Index rows, Index width, const T* x, T* y);
/// dx = [dy * b * f'(a), dy * f(a)]
TAPEFORMER_KERNEL(gated_backward, Unary f, Index rows, Index width, const T* x, const T* dy, Write<T> dx);

}  // namespace tapeformer::kernels
