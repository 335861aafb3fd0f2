#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/reduce.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr Index kColumns = 256;  // a strip of partial sums that stays in the first-level cache
constexpr Index kRows =
    64;  // rows summed before they join the total: keeps f32 sums of many rows exact enough

/// y[columns] = sum over n rows of x, `stride` apart.
template <class T>
void sum_columns(Index n, Index stride, Index columns, const T* x, Write<T> y) {
  for (Index from = 0; from < columns; from += kColumns) {
    const Index width = std::min(kColumns, columns - from);
    T total[kColumns] = {};
    for (Index row = 0; row < n; row += kRows) {
      T part[kColumns] = {};
      for (Index r = row; r < std::min(n, row + kRows); ++r) {
        const T* line = x + r * stride + from;
#pragma omp simd
        for (Index i = 0; i < width; ++i) part[i] += line[i];
      }
#pragma omp simd
      for (Index i = 0; i < width; ++i) total[i] += part[i];
    }
    for (Index i = 0; i < width; ++i) y.put(from + i, total[i]);
  }
}

}  // namespace

template <class T>
void reduce_sum(Cpu, Index outer, Index n, Index inner, const T* x, Write<Wide<T>> y) {
  if (inner == 1) {
    return parallel_ranges(outer, n, [&](Index from, Index to) {
      const auto itself = [](const Batch<T>& v) { return v; };
      for (Index o = from; o < to; ++o) y.put(o, sum_simd<T>(n, itself, x + o * n));
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
void reduce_max(Cpu, Index outer, Index n, Index inner, const T* x, T* y) {
  parallel_ranges(outer, n * inner, [&](Index from, Index to) {
    for (Index o = from; o < to; ++o) {
      const T* block = x + o * n * inner;
      T* largest = y + o * inner;
      std::copy(block, block + inner, largest);
      for (Index row = 1; row < n; ++row) {
        const T* line = block + row * inner;
        for (Index i = 0; i < inner; ++i)
          largest[i] = line[i] > largest[i] || line[i] != line[i] ? line[i] : largest[i];
      }
    }
  });
}

template void reduce_sum(Cpu, Index, Index, Index, const float*, Write<float>);
template void reduce_sum(Cpu, Index, Index, Index, const double*, Write<double>);
template void reduce_max(Cpu, Index, Index, Index, const float*, float*);
template void reduce_max(Cpu, Index, Index, Index, const double*, double*);

}  // namespace tapeformer::kernels
