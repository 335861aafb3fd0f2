#pragma once

#include <tapeformer/autograd/kernels/elementwise.h>
#include <tapeformer/autograd/shape.h>

namespace tapeformer {

/// Strides for filling `result` from up to three operands together; for a missing operand pass `result`.
/// Adjacent axes are merged if each operand is contiguous or repeats along both.
kernels::Broadcast broadcast_walk(const Shape& result, const Shape& a, const Shape& b, const Shape& c);

/// Row-major strides of `x` broadcast to `result`: 0 where it repeats.
void broadcast_strides(const Shape& result, const Shape& x, Index* strides);

/// Merges adjacent axes whose strides are contiguous for all operands (an empty walk stays empty).
kernels::Broadcast merged(const kernels::Broadcast& walk);

}  // namespace tapeformer
