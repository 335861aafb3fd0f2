#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// Which two components of a head make a pair: (2i, 2i + 1), or (i, i + pairs).
enum class RotaryLayout : std::uint8_t { interleaved, half_split };

/// table [positions, 2, pairs]: the cosines, then the sines of position * frequencies[i], reckoned in double.
/// The frequencies are in the host's memory on every device. T is f32 or f64.
template <class T>
void rotary_table(Cpu, Index count, Index pairs, const double* frequencies, const std::int32_t* positions,
                  T* table);
template <class T>
void rotary_table(Cuda, Index count, Index pairs, const double* frequencies, const std::int32_t* positions,
                  T* table);

/// x [rows, row_width] begins with `heads` heads. The first 2 pairs numbers of each are turned by the angles
/// of table row r % period, backwards if `inverse`; all else in the row is passed on.
struct Rotation {
  Index rows = 0, row_width = 0, heads = 0, head_width = 0, pairs = 0;
  Index period = 0;
  RotaryLayout layout = RotaryLayout::interleaved;
  bool inverse = false;
};
template <class T>
void rotate(Cpu, const Rotation& shape, const Wide<T>* table, const T* x, Write<T> y);
template <class T>
void rotate(Cuda, const Rotation& shape, const Wide<T>* table, const T* x, Write<T> y);

}  // namespace tapeformer::kernels
