#pragma once

#include <tapeformer/autograd/shape.h>

namespace tapeformer::kernels {

constexpr Index kRowsInTurn = 64;  // added in sequence

/// The number of times that sum_by_halves() cuts `count` rows.
inline Index halvings(Index count) {
  Index levels = 0;
  for (; count > kRowsInTurn; count = (count + 1) / 2) ++levels;
  return levels + 1;
}

/// sum[width] = the sum of rows [from, to); leaf(from, to, sum) adds up at most kRowsInTurn of them. The
/// error is at most u (64 + log2(rows / 64)) sum |x|. `scratch` holds width * halvings(to - from) numbers.
/// Source:  Higham 1993, The accuracy of floating point summation, section 3
template <class T, class Leaf>
void sum_by_halves(Index from, Index to, Index width, const Leaf& leaf, T* sum, T* scratch) {
  if (to - from <= kRowsInTurn) return leaf(from, to, sum);
  const Index middle = from + ((to - from) / 2 + kRowsInTurn - 1) / kRowsInTurn * kRowsInTurn;
  sum_by_halves(from, middle, width, leaf, sum, scratch);
  sum_by_halves(middle, to, width, leaf, scratch, scratch + width);
#pragma omp simd
  for (Index i = 0; i < width; ++i) sum[i] += scratch[i];
}

}  // namespace tapeformer::kernels
