#pragma once

#include <tapeformer/autograd/kernels/elementwise.h>
#include <tapeformer/autograd/shape.h>

namespace tapeformer {

/// How up to three operands are walked together to fill `result`; a missing operand is given as `result`.
/// Adjacent axes along which each operand either runs on or repeats are merged.
kernels::Broadcast broadcast_walk(const Shape& result, const Shape& a, const Shape& b, const Shape& c);

/// Dense row-major strides of `x` seen as `result`: 0 where it repeats.
void broadcast_strides(const Shape& result, const Shape& x, Index* strides);

/// Merges adjacent axes whose strides run on for all operands (an empty walk stays empty).
kernels::Broadcast merged(const kernels::Broadcast& walk);

}  // namespace tapeformer
