#pragma once

#include <tapeformer/autograd/communication/communicator.h>

namespace tapeformer {

/// to[i] = the sum or the mean of from[rank * stride + i] over the ranks, in their order, for i < count; in
/// the elements' own type, bf16 in f32. `to` must not overlap `from`.
void add_ranks(DType type, const void* from, Index stride, int ranks, Index count, Reduction reduction,
               void* to);

}  // namespace tapeformer
