#pragma once

#include <tapeformer/autograd/kernels/rotary.h>
#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

using kernels::RotaryLayout;

/// The angles of positions. By default angle_i = position * base^(-2i / width). To reach further than a model
/// was trained, raise the base, or interpolate positions by a factor.
struct RotaryConfig {
  double base = 10000;                              ///< of the angles' geometric series
  RotaryLayout layout = RotaryLayout::interleaved;  ///< which components make a pair
  Index width = 0;          ///< the number of first components of every head to rotate, even; 0 for all
  Index max_positions = 0;  ///< positions from here on are refused; 0 for no limit
  double factor = 1;        ///< divides the angles: linear interpolation of positions
  /// If not 0, Llama 3's scaling: frequencies of pairs that rotate less than low_frequency times within this
  /// length are divided by the factor, those of pairs that rotate more than high_frequency times stay, and
  /// the frequencies between are blended.
  Index original_context = 0;
  /// Rotations over original_context positions between which frequencies are blended.
  double low_frequency = 1, high_frequency = 4;
  /// With an original_context, YaRN in place of Llama 3's scaling: frequencies are blended in proportion to
  /// the number of the pair, between those that rotate high_frequency (often 32) and low_frequency (1) times.
  bool yarn = false;
  /// Multiplies the rotated components; YaRN's is 0.1 log(factor) + 1.
  double attention_factor = 1;
  bool reversed = false;    ///< pairs rotate the other way: all angles are negated
  bool whole_pairs = true;  ///< YaRN's two numbers of pairs are rounded outwards to whole ones
};

/// The cosines and sines of positions, computed once for all layers with the same angles.
struct RotaryAngles {
  Tensor table;  ///< [T or B, T, 2, pairs]: cosines, then sines; f32 with bf16
  RotaryLayout layout = RotaryLayout::interleaved;  ///< which components make a pair
};
/// The angles for heads of `head_width` components of type `type`, at positions i32 [T] or [B, T].
/// Throws:  ShapeError if the width is odd, positions have another rank, one is beyond the limit, or base,
///          factor and the two frequencies make no angle; DTypeError unless positions are i32
RotaryAngles rotary_angles(const RotaryConfig& config, Index head_width, const Tensor& positions, DType type);
/// The angles of positions first, first + 1 ..., `length` of them; on a GPU nothing is read from the host.
RotaryAngles rotary_angles(const RotaryConfig& config, Index head_width, Index first, Index length,
                           DType type, Device device);

/// Rotary position embedding: rotates each pair of a head's components by an angle proportional to the
/// position, so that the product of a query and a key depends only on their distance. If x is the only handle
/// to its memory, the result overwrites it.
/// Math:    (y_a, y_b) = c (x_a cos - x_b sin, x_a sin + x_b cos), angle = position * frequency_i,
///          c = attention_factor,
///          pair i being components (2i, 2i + 1), or (i, i + width/2) when half_split; a negative position
///          rotates the other way
/// Grad:    dx = c dy rotated by the opposite angle
/// Shapes:  x [B, T, H, D], angles of [T] or [B, T] -> y [B, T, H, D]
/// Saves:   the cosine and sine of each position and pair
/// Throws:  ShapeError if the shapes do not fit
/// Source:  Su et al. 2021, arXiv:2104.09864, section 3.2; interpolation: Chen et al. 2023, arXiv:2306.15595;
///          Llama 3: Grattafiori et al. 2024, arXiv:2407.21783; YaRN: Peng et al. 2023, arXiv:2309.00071
Tensor rotary(Tensor x, const RotaryAngles& angles);
/// rotary() for a single call, which computes its angles.
inline Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryConfig& config = {}) {
  return rotary(x, rotary_angles(config, x.size(3), positions, x.dtype()));
}
/// rotary() for the first `heads` heads, of `head_width` each, of wider rows: the queries and keys of a
/// packed projection. The rest of a row is copied.
/// Shapes:  x [B, T, N], N >= heads * head_width -> y [B, T, N]
Tensor packed_rotary(Tensor x, Index heads, Index head_width, const RotaryAngles& angles);

}  // namespace tapeformer
