#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// y[i] = table[ids[i]], rows of `width`. On a GPU, ids outside [0, vocabulary) give zeros and are reported
/// later.
TAPEFORMER_KERNEL(embedding_forward, Index count, Index vocabulary, Index width, const std::int32_t* ids,
                  const T* table, T* y);
/// dtable[ids[i]] += dy[i] in the order of i; dtable is cleared first unless the gradient is added to it.
TAPEFORMER_KERNEL(embedding_backward, Index count, Index vocabulary, Index width, const std::int32_t* ids,
                  const T* dy, Write<Wide<T>> dtable);

}  // namespace tapeformer::kernels
