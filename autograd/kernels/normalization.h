#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// What joins x before it is normalised: sum = x + branch, or x + dropout(branch). As it stands: nothing.
template <class T>
struct Branch {
  const T* from = nullptr;
  const std::int32_t* mask = nullptr;  ///< dropout_mask()'s bits; nullptr: all is kept, as it is
  Wide<T> scale = 1;                   ///< of what is kept
  T* sum = nullptr;
};
/// dropout's share of the gradient of the sum. As it stands: not wanted.
template <class T>
struct BranchGradient {
  const std::int32_t* mask = nullptr;
  Wide<T> scale = 1;
  T* to = nullptr;
};

/// Rows of n values. `centred` subtracts the mean (layer norm); without it the mean counts as 0 (RMS norm).
/// weight and bias may be nullptr, for 1 and 0. Keeps what backward needs: mean [rows], unless it is nullptr,
/// and rstd [rows] = 1 / sqrt(variance + epsilon).
template <class T>
void normalize_forward(Cpu, Index rows, Index n, bool centred, Wide<T> epsilon, const T* x,
                       const Branch<T>& branch, const T* weight, const T* bias, T* y, Wide<T>* mean,
                       Wide<T>* rstd);
template <class T>
void normalize_forward(Cuda, Index rows, Index n, bool centred, Wide<T> epsilon, const T* x,
                       const Branch<T>& branch, const T* weight, const T* bias, T* y, Wide<T>* mean,
                       Wide<T>* rstd);

/// How many parts normalize_backward sums the columns in; on the CPU it depends on the number of threads.
Index normalize_parts(Cpu, Index rows, Index n);
Index normalize_parts(Cuda, Index rows, Index n);

/// x is what was normalised: the sum, where a branch joined. `partials` is room for 2 n values a part;
/// nullptr when neither dweight nor dbias is wanted. `branch` wants dx too.
template <class T>
void normalize_backward(Cpu, Index rows, Index n, bool centred, const T* x, const T* weight,
                        const Wide<T>* mean, const Wide<T>* rstd, const T* dy, Wide<T>* partials, Write<T> dx,
                        const BranchGradient<T>& branch, Write<Wide<T>> dweight, Write<Wide<T>> dbias);
template <class T>
void normalize_backward(Cuda, Index rows, Index n, bool centred, const T* x, const T* weight,
                        const Wide<T>* mean, const Wide<T>* rstd, const T* dy, Wide<T>* partials, Write<T> dx,
                        const BranchGradient<T>& branch, Write<Wide<T>> dweight, Write<Wide<T>> dbias);

}  // namespace tapeformer::kernels
