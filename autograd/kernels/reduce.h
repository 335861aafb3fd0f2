#pragma once

#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// x [outer, n, inner] -> y [outer, inner], summed over n in the wide type.
TAPEFORMER_KERNEL(reduce_sum, Index outer, Index n, Index inner, const T* x, Write<Wide<T>> y);
/// y [n] = the sum of the rows of x [rows, n], which begin `lead` values apart; on the CPU that must be n.
TAPEFORMER_KERNEL(sum_rows, Index rows, Index n, Index lead, const T* x, Write<Wide<T>> y);

}  // namespace tapeformer::kernels
