#pragma once

#include <tapeformer/autograd/kernels/attention.h>

namespace tapeformer::kernels {

/// Attention of few queries and many keys, as in decoding with a cache: several blocks of a GPU share the
/// keys of one head, and the heads that read the same keys share a block. Returns false, and queues nothing,
/// if it does not support the case.
template <class T>
bool split_attention_forward(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x, T* y,
                             Wide<T>* log_sum);

}  // namespace tapeformer::kernels
