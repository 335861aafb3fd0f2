#pragma once

#include <tapeformer/autograd/kernels/rotary.h>
#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

using kernels::RotaryLayout;

/// Rotary position embedding: turns each pair of a head's components by an angle that grows with the
/// position, so that the product of a query and a key depends on their distance only.
/// Math:    (y_a, y_b) = (x_a cos - x_b sin, x_a sin + x_b cos), angle = position * base^(-2i / D),
///          pair i being components (2i, 2i + 1), or (i, i + D/2) when half_split
/// Grad:    dx = dy turned by the opposite angle
/// Shapes:  x [B, T, H, D], positions i32 [T] or [B, T] -> y [B, T, H, D]
/// Saves:   the cosines and sines, one of each a position and pair
/// Throws:  ShapeError if the shapes do not fit or D is odd, DTypeError unless positions are i32
/// Source:  Su et al. 2021, arXiv:2104.09864, section 3.2
Tensor rotary(const Tensor& x, const Tensor& positions, double base = 10000,
              RotaryLayout layout = RotaryLayout::interleaved);

}  // namespace tapeformer
