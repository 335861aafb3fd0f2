#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// y[i] = table[ids[i]], rows of `width`. On a GPU, ids outside [0, vocabulary) give zeros and are reported
/// later.
template <class T>
void embedding_forward(Cpu, Index count, Index vocabulary, Index width, const std::int32_t* ids,
                       const T* table, T* y);
template <class T>
void embedding_forward(Cuda, Index count, Index vocabulary, Index width, const std::int32_t* ids,
                       const T* table, T* y);
/// dtable[ids[i]] += dy[i] in the order of i; dtable is cleared first unless the gradient is added.
template <class T>
void embedding_backward(Cpu, Index count, Index vocabulary, Index width, const std::int32_t* ids, const T* dy,
                        Write<Wide<T>> dtable);
template <class T>
void embedding_backward(Cuda, Index count, Index vocabulary, Index width, const std::int32_t* ids,
                        const T* dy, Write<Wide<T>> dtable);

}  // namespace tapeformer::kernels
