#pragma once

#include <tapeformer/autograd/ops/elementwise.h>

namespace tapeformer {

/// Gates the second half of the last axis by a function of the first.
/// Math:    y = f(a) * b, x = [a, b] along the last axis
/// Grad:    da = dy * b * f'(a), db = dy * f(a)
/// Shapes:  x [..., 2 F] -> y [..., F]
/// Saves:   x
/// Throws:  ShapeError if the last axis is odd
/// Source:  Shazeer 2020, arXiv:2002.05202 (SwiGLU: f = silu)
Tensor gated(Unary f, const Tensor& x);

}  // namespace tapeformer
