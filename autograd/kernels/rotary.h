#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// Which two components of a head make a pair: (2i, 2i + 1) or (i, i + D/2).
enum class RotaryLayout : std::uint8_t { interleaved, half_split };

/// table [positions, 2, pairs]: the cosines, then the sines of position * base^(-i / pairs), reckoned in
/// double.
template <class T>
void rotary_table(Cpu, Index count, Index pairs, double base, const std::int32_t* positions, T* table);

/// x [rows, heads, 2 pairs], row r turned by the angles of table row r % period, backwards if `inverse`.
struct Rotation {
  Index rows = 0, heads = 0, pairs = 0;
  Index period = 0;
  RotaryLayout layout = RotaryLayout::interleaved;
  bool inverse = false;
};
template <class T>
void rotate(Cpu, const Rotation& shape, const T* table, const T* x, Write<T> y);

}  // namespace tapeformer::kernels
