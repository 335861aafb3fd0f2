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
/// gated() with silu and both halves bounded, in the form of gpt-oss.
/// Math:    y = (min(max(b, -limit), limit) + 1) a' sigmoid(alpha a'), a' = min(a, limit), x = [a, b]
/// Grad:    that of the formula; a value beyond its bound gets 0
/// Shapes:  x [..., 2 F] -> y [..., F]
/// Throws:  ShapeError if the last axis is odd
/// Source:  OpenAI 2025, arXiv:2508.10925, section 2
Tensor gated_within(double limit, double alpha, const Tensor& x);

}  // namespace tapeformer
