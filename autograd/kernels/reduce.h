#pragma once

#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// x [outer, n, inner] -> y [outer, inner], summed over n in the wide type.
template <class T>
void reduce_sum(Cpu, Index outer, Index n, Index inner, const T* x, Write<Wide<T>> y);
template <class T>
void reduce_sum(Cuda, Index outer, Index n, Index inner, const T* x, Write<Wide<T>> y);
/// y [n] = the sum of the rows of x [rows, n], which begin `lead` values apart.
template <class T>
void sum_rows(Cuda, Index rows, Index n, Index lead, const T* x, Write<Wide<T>> y);
/// x [outer, n, inner] -> y [outer, inner], the largest over n (NaN if there is one); n >= 1.
template <class T>
void reduce_max(Cpu, Index outer, Index n, Index inner, const T* x, T* y);
template <class T>
void reduce_max(Cuda, Index outer, Index n, Index inner, const T* x, T* y);

}  // namespace tapeformer::kernels
