#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// A walk over a dense result whose source is read through strides (in elements; 0 repeats).
struct StridedView {
  int axes = 0;
  Index sizes[8] = {};
  Index strides[8] = {};
};

/// y = x read through `view`; y is dense.
template <class T>
void copy_strided(Cpu, const StridedView& view, const T* x, T* y);
template <class T>
void copy_strided(Cuda, const StridedView& view, const T* x, T* y);
/// y[o, to + i] = x[o, from + i] for i < width, rows of x and y being width_x and width_y wide.
template <class T>
void copy_columns(Cpu, Index outer, Index width, Index width_x, Index from, Index width_y, Index to,
                  const T* x, T* y);
template <class T>
void copy_columns(Cuda, Index outer, Index width, Index width_x, Index from, Index width_y, Index to,
                  const T* x, T* y);
template <class T>
void fill(Cpu, Index count, double value, T* y);
template <class T>
void fill(Cuda, Index count, double value, T* y);
/// x [outer, n, inner], index [outer, m, inner] -> y [outer, m, inner] with y[o,j,i] = x[o, index[o,j,i], i].
template <class T>
void gather(Cpu, Index outer, Index n, Index m, Index inner, const std::int32_t* index, const T* x, T* y);
template <class T>
void gather(Cuda, Index outer, Index n, Index m, Index inner, const std::int32_t* index, const T* x, T* y);
/// The transpose of gather: y [outer, n, inner], cleared, then y[o, index[o,j,i], i] += x[o,j,i].
template <class T>
void scatter_add(Cpu, Index outer, Index n, Index m, Index inner, const std::int32_t* index, const T* x,
                 T* y);
template <class T>
void scatter_add(Cuda, Index outer, Index n, Index m, Index inner, const std::int32_t* index, const T* x,
                 T* y);

}  // namespace tapeformer::kernels
