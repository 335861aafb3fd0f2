#pragma once

#include <tapeformer/autograd/kernels/cpu/parallel.h>

namespace tapeformer::kernels {

constexpr Index kRowsInTurn = 64;  // added in sequence

/// A bound on the depth to which sum_by_halves() cuts `count` rows.
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

/// partials[part] = the sums [width] of the part's rows, which run_rows(from, to, sums) adds up. Without
/// partials it is called with nullptr.
template <class T, class Rows>
void sum_parts(Index rows, Index parts, Index work, Index width, const Rows& run_rows, T* partials) {
  parallel_ranges(parts, work, [&](Index first, Index last) {
    for (Index part = first; part < last; ++part) {
      const Index from = rows * part / parts, to = rows * (part + 1) / parts;
      if (partials == nullptr) {
        run_rows(from, to, nullptr);
        continue;
      }
      struct Halves {};
      T* const scratch = thread_memory<Halves, T>(width * halvings(to - from));
      sum_by_halves(from, to, width, run_rows, partials + part * width, scratch);
    }
  });
}

}  // namespace tapeformer::kernels
