#pragma once

#include <tapeformer/autograd/kernels/rotary.h>
#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

using kernels::RotaryLayout;

/// How positions become angles. As it stands: angle_i = position * base^(-2i / width). To reach further than
/// a model was trained, raise the base, or stretch positions by a factor.
struct RotaryConfig {
  double base = 10000;
  RotaryLayout layout = RotaryLayout::interleaved;
  Index width = 0;          ///< turns so many first components of every head, an even number; 0 for all
  Index max_positions = 0;  ///< positions from here on are refused; 0 for no limit
  double factor = 1;        ///< divides the angles: linear interpolation of positions
  /// With a length given, Llama 3's scaling: only pairs that turn less than low_frequency times within that
  /// length are divided by the factor, those that turn more than high_frequency times are left as they are,
  /// and the frequencies between are blended.
  Index original_context = 0;
  double low_frequency = 1, high_frequency = 4;
};

/// Rotary position embedding: turns each pair of a head's components by an angle that grows with the
/// position, so that the product of a query and a key depends on their distance only.
/// Math:    (y_a, y_b) = (x_a cos - x_b sin, x_a sin + x_b cos), angle = position * frequency_i,
///          pair i being components (2i, 2i + 1), or (i, i + width/2) when half_split; a negative position
///          turns the other way
/// Grad:    dx = dy turned by the opposite angle
/// Shapes:  x [B, T, H, D], positions i32 [T] or [B, T] -> y [B, T, H, D]
/// Saves:   the cosines and sines, one of each a position and pair
/// Throws:  ShapeError if the shapes do not fit, the width is odd, a position is beyond the limit or
///          base, factor and the two frequencies make no angle; DTypeError unless positions are i32
/// Source:  Su et al. 2021, arXiv:2104.09864, section 3.2; interpolation: Chen et al. 2023, arXiv:2306.15595;
///          Llama 3: Grattafiori et al. 2024, arXiv:2407.21783
Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryConfig& config = {});

/// The same for the first `heads` heads, of `head_width` each, in rows that hold more: the queries and keys
/// of a packed projection. What follows them is passed on.
/// Shapes:  x [B, T, N], N >= heads * head_width -> y [B, T, N]
Tensor packed_rotary(const Tensor& x, Index heads, Index head_width, const Tensor& positions,
                     const RotaryConfig& config = {});

/// What positions turn heads by, to be reckoned once for all layers that turn alike.
struct RotaryAngles {
  Tensor table;  ///< [T or B, T, 2, pairs]: cosines, then sines; f32 beside bf16
  RotaryLayout layout = RotaryLayout::interleaved;
};
/// For heads of `head_width` components of type `type`.
/// Throws:  as rotary
RotaryAngles rotary_angles(const RotaryConfig& config, Index head_width, const Tensor& positions, DType type);
/// Of the positions first, first + 1 ..., `length` of them; on a GPU nothing comes from the host's memory.
RotaryAngles rotary_angles(const RotaryConfig& config, Index head_width, Index first, Index length,
                           DType type, Device device);
/// The same by angles that are known. Given the only handle to x, they turn it where it lies.
/// Throws:  ShapeError if the shapes do not fit
Tensor rotary(Tensor x, const RotaryAngles& angles);
Tensor packed_rotary(Tensor x, Index heads, Index head_width, const RotaryAngles& angles);

}  // namespace tapeformer
