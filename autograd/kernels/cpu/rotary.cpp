#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/rotary.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr Index kMostPairs = 128;  // computed at a time, so that their sines fit on the stack

/// Rotates one head: pair i is x[i * stride] and x[i * stride + other]; sines follow the cosines. Inlined, so
/// that the strides are constants and the loop is vectorised.
template <class T>
inline void turn(Index pairs, Index stride, Index other, T sign, const T* cosine, const T* x, Write<T> y) {
  const T* sine = cosine + pairs;
#pragma omp simd
  for (Index i = 0; i < pairs; ++i) {
    const T a = x[i * stride], b = x[i * stride + other], c = cosine[i], n = sign * sine[i];
    y.put(i * stride, a * c - b * n);
    y.put(i * stride + other, a * n + b * c);
  }
}

template <class T>
inline void pass_on(Index from, Index to, const T* x, Write<T> y) {
#pragma omp simd
  for (Index i = from; i < to; ++i) y.put(i, x[i]);
}

}  // namespace

template <class T>
void rotary_table(Cpu, const TokenPositions& positions, Index pairs, const double* frequencies, T* table) {
  using V = Lanes<double>;
  for (Index first = 0; first < pairs; first += kMostPairs) {
    const Index some = std::min(kMostPairs, pairs - first);
    parallel_ranges(positions.count, some * 16, [&](Index from, Index to) {
      double cosines[kMostPairs], sines[kMostPairs];
      for (Index p = from; p < to; ++p) {
        const Index at = positions.at != nullptr ? positions.at[p] : positions.first + p;
        const V position(static_cast<double>(at));
        map_simd(
            0, some, cosines, [&](const V& f) { return xsimd::cos(position * f); }, frequencies + first);
        map_simd(
            0, some, sines, [&](const V& f) { return xsimd::sin(position * f); }, frequencies + first);
        std::copy_n(cosines, some, table + 2 * p * pairs + first);
        std::copy_n(sines, some, table + (2 * p + 1) * pairs + first);
      }
    });
  }
}

template <class T>
void rotate(Cpu, const Rotation& s, const Wide<T>* table, const T* x, Write<T> y) {
  const T sign = s.inverse ? T(-1) : T(1);
  const bool in_place = x == y.to;
  parallel_ranges(s.rows, s.row_width, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const T* cosine = table + row % s.period * 2 * s.pairs;
      for (Index head = 0; head < s.heads; ++head) {
        const Index at = row * s.row_width + head * s.head_width;
        const Write<T> result{y.to + at, y.add};
        if (s.layout == RotaryLayout::interleaved) {
          turn(s.pairs, 2, 1, sign, cosine, x + at, result);
        } else {
          turn(s.pairs, 1, s.pairs, sign, cosine, x + at, result);
        }
        if (!in_place) pass_on(2 * s.pairs, s.head_width, x + at, result);
      }
      if (!in_place) pass_on(row * s.row_width + s.heads * s.head_width, (row + 1) * s.row_width, x, y);
    }
  });
}

TAPEFORMER_CPU_KERNEL(rotary_table);
TAPEFORMER_CPU_KERNEL(rotate);

}  // namespace tapeformer::kernels
