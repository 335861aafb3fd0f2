#pragma once

#include <tapeformer/autograd/kernels/elementwise.h>

#include <cstdint>

namespace tapeformer::kernels {

/// y = x read through the strides of `view`'s first operand; y is dense.
TAPEFORMER_KERNEL(copy_strided, const Broadcast& view, const T* x, T* y);
/// y[o, to + i] = x[o, from + i] for i < width, rows of x and y being width_x and width_y wide.
TAPEFORMER_KERNEL(copy_columns, Index outer, Index width, Index width_x, Index from, Index width_y, Index to,
                  const T* x, T* y);
TAPEFORMER_KERNEL(fill, Index count, double value, T* y);
/// x [outer, n, inner], index [outer, m, inner] -> y [outer, m, inner] with y[o,j,i] = x[o, index[o,j,i], i].
TAPEFORMER_KERNEL(gather, Index outer, Index n, Index m, Index inner, const std::int32_t* index, const T* x,
                  T* y);
/// The transpose of gather: y [outer, n, inner], cleared, then y[o, index[o,j,i], i] += x[o,j,i].
TAPEFORMER_KERNEL(scatter_add, Index outer, Index n, Index m, Index inner, const std::int32_t* index,
                  const T* x, T* y);

}  // namespace tapeformer::kernels
