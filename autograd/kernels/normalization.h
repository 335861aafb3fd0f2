#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// An addend of x before the norm: sum = x + branch, or x + dropout(branch). By default there is none.
template <class T>
struct Branch {
  const T* from = nullptr;
  const std::int32_t* mask = nullptr;  ///< dropout_mask()'s bits; nullptr for no dropout
  Wide<T> scale = 1;                   ///< of the kept elements
  T* sum = nullptr;
};
/// The gradient of the branch: dropout's gradient from that of the sum. By default it is not computed.
template <class T>
struct BranchGradient {
  const std::int32_t* mask = nullptr;
  Wide<T> scale = 1;
  T* to = nullptr;
};

/// Normalises rows of n values. `centred` subtracts the mean (layer norm); without it the mean counts as 0
/// (RMS norm). weight and bias may be nullptr, for 1 and 0. Writes for the backward kernel: mean [rows],
/// unless it is nullptr, and rstd [rows] = 1 / sqrt(variance + epsilon).
TAPEFORMER_KERNEL(normalize_forward, Index rows, Index n, bool centred, double epsilon, const T* x,
                  const Branch<T>& branch, const T* weight, const T* bias, T* y, Wide<T>* mean,
                  Wide<T>* rstd);

/// The number of parts of normalize_backward's sums over rows; on the CPU it depends on the number of
/// threads.
Index normalize_parts(Cpu, Index rows, Index n);
Index normalize_parts(Cuda, Index rows, Index n);

/// x is the input of the norm: the sum, if there was a branch. `partials` holds 2 n values for each part;
/// nullptr if neither dweight nor dbias is needed. `branch` requires dx.
TAPEFORMER_KERNEL(normalize_backward, Index rows, Index n, bool centred, const T* x, const T* weight,
                  const Wide<T>* mean, const Wide<T>* rstd, const T* dy, Wide<T>* partials, Write<T> dx,
                  const BranchGradient<T>& branch, Write<Wide<T>> dweight, Write<Wide<T>> dbias);

/// RMS norms of the heads in rows of a packed projection: the first `queries` heads of `n` values with one
/// weight, the `keys` heads after them with another. The rest of a row is copied.
struct HeadNorms {
  Index rows = 0, width = 0, n = 0, queries = 0, keys = 0;
  double epsilon = 0;
  TAPEFORMER_HOST_DEVICE Index heads() const { return queries + keys; }
};
/// x and y [rows, width]; rstd [rows, heads], for the backward kernel.
TAPEFORMER_KERNEL(head_norms_forward, const HeadNorms& sizes, const T* x, const T* query_weight,
                  const T* key_weight, T* y, Wide<T>* rstd);
/// `partials` holds 2 n values for each of normalize_parts(rows, width) parts; nullptr if no weight's
/// gradient is needed.
TAPEFORMER_KERNEL(head_norms_backward, const HeadNorms& sizes, const T* x, const T* query_weight,
                  const T* key_weight, const Wide<T>* rstd, const T* dy, Wide<T>* partials, Write<T> dx,
                  Write<Wide<T>> dquery_weight, Write<Wide<T>> dkey_weight);

}  // namespace tapeformer::kernels
