#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// The two components of a head's pair i: (2i, 2i + 1), or (i, i + pairs).
enum class RotaryLayout : std::uint8_t { interleaved, half_split };

/// The positions of tokens: `at`, or if it is nullptr, first, first + 1 ...
struct TokenPositions {
  Index count = 0;
  const std::int32_t* at = nullptr;
  Index first = 0;
};
/// table [positions, 2, pairs]: the cosines, then the sines of position * frequencies[i], computed in double.
/// The frequencies are in the host's memory for every device. T is f32 or f64.
TAPEFORMER_KERNEL(rotary_table, const TokenPositions& positions, Index pairs, const double* frequencies,
                  T* table);

/// x [rows, row_width] begins with `heads` heads. The first 2 pairs numbers of each are rotated by the angles
/// of table row r % period, backwards if `inverse`; the rest of the row is copied. y may be x.
struct Rotation {
  Index rows = 0, row_width = 0, heads = 0, head_width = 0, pairs = 0;
  Index period = 0;
  RotaryLayout layout = RotaryLayout::interleaved;
  bool inverse = false;
};
TAPEFORMER_KERNEL(rotate, const Rotation& shape, const Wide<T>* table, const T* x, Write<T> y);

}  // namespace tapeformer::kernels
