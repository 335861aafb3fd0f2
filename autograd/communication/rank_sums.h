#pragma once

#include <tapeformer/autograd/dtype.h>
#include <tapeformer/autograd/shape.h>

namespace tapeformer {

/// to[i] = the sum of from[rank * count + i] over the ranks, in their order, for i < count; in the elements'
/// own type, bf16 in f32. `to` must not overlap `from`.
void add_ranks(DType type, const void* from, int ranks, Index count, void* to);

}  // namespace tapeformer
