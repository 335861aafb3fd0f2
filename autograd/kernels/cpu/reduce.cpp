#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/cpu/sum_by_halves.h>
#include <tapeformer/autograd/kernels/reduce.h>

#include <algorithm>
#include <numeric>

namespace tapeformer::kernels {
namespace {

constexpr Index kColumns = 256;  // a strip of partial sums that stays in the L1 cache
constexpr Index kPart = 65536;   // of a sum that threads share

/// y[columns] = sum over n rows of x, `stride` apart.
template <class T>
void sum_columns(Index n, Index stride, Index columns, const T* x, Write<T> y) {
  struct Strip {};
  T* const sum = thread_memory<Strip, T>(kColumns * (1 + halvings(n)));
  for (Index from = 0; from < columns; from += kColumns) {
    const Index width = std::min(kColumns, columns - from);
    const auto add_rows = [&](Index first, Index last, T* to) {
      std::fill_n(to, width, T(0));
      for (Index row = first; row < last; ++row) {
        const T* line = x + row * stride + from;
#pragma omp simd
        for (Index i = 0; i < width; ++i) to[i] += line[i];
      }
    };
    sum_by_halves(0, n, width, add_rows, sum, sum + kColumns);
    for (Index i = 0; i < width; ++i) y.put(from + i, sum[i]);
  }
}

template <class T>
T sum_of(Index n, const T* x) {
  return n < kLanes<T> ? std::accumulate(x, x + n, T(0)) : total_simd(n, x);
}

/// The sum of one long row in parts that threads share; the order does not depend on the number of threads.
template <class T>
T sum_in_parts(Index n, const T* x) {
  struct Parts {};
  const Index parts = (n + kPart - 1) / kPart;
  T* const sums = thread_memory<Parts, T>(parts);
  parallel_ranges(parts, kPart, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) sums[i] = sum_of(std::min(kPart, n - i * kPart), x + i * kPart);
  });
  return sum_of(parts, static_cast<const T*>(sums));
}

}  // namespace

template <class T>
void reduce_sum(Cpu, Index outer, Index n, Index inner, const T* x, Write<Wide<T>> y) {
  if (outer == 1 && inner == 1) return y.put(0, sum_in_parts(n, x));
  if (inner == 1) {
    return parallel_ranges(outer, n, [&](Index from, Index to) {
      for (Index o = from; o < to; ++o) y.put(o, sum_of(n, x + o * n));
    });
  }
  if (outer == 1) {
    return parallel_ranges(inner, n, [&](Index from, Index to) {
      sum_columns(n, inner, to - from, x + from, Write<T>{y.to + from, y.add});
    });
  }
  parallel_ranges(outer, n * inner, [&](Index from, Index to) {
    for (Index o = from; o < to; ++o) {
      sum_columns(n, inner, inner, x + o * n * inner, Write<T>{y.to + o * inner, y.add});
    }
  });
}

template <class T>
void sum_rows(Cpu on, Index rows, Index n, Index, const T* x, Write<Wide<T>> y) {
  reduce_sum(on, 1, rows, n, x, y);
}

TAPEFORMER_CPU_KERNEL(reduce_sum);
TAPEFORMER_CPU_KERNEL(sum_rows);

}  // namespace tapeformer::kernels
