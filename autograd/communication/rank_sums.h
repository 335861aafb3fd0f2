#pragma once

#include <tapeformer/autograd/dtype.h>
#include <tapeformer/autograd/shape.h>

namespace tapeformer {

/// Sets to[i], for i < count, to the sum of from[rank * count + i] over the ranks, in their order; sums are
/// in the elements' own type, bf16's in f32. `to` must not overlap `from`.
void add_ranks(DType type, const void* from, int ranks, Index count, void* to);

}  // namespace tapeformer
