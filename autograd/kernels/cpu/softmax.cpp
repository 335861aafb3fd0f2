#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/softmax.h>

#include <cmath>

namespace tapeformer::kernels {
namespace {

/// The number subtracted before exp: the row's maximum, or 0 for a row of minus infinities (whose exp is then
/// 0 instead of NaN).
template <class T>
T shift_of(Index n, const T* x) {
  const T largest = max_simd(n, x);
  return largest == kMinusInfinity<T> ? T(0) : largest;
}

/// y = exp(x - shift); returns its sum, by halves in long rows, as sum_simd() does.
template <class T>
T exp_and_sum(Index n, T shift, const T* x, T* y) {
  constexpr Index kBlock = 1024;
  if (n > kBlock) {
    const Index half = (n / 2 + kBlock - 1) / kBlock * kBlock;
    return exp_and_sum(half, shift, x, y) + exp_and_sum(n - half, shift, x + half, y + half);
  }
  const Lanes<T> shifts(shift);
  Lanes<T> sums(T(0));
  Index i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    const Lanes<T> value = exp_lanes(Lanes<T>::load_unaligned(x + i) - shifts);
    value.store_unaligned(y + i);
    sums += value;
  }
  if (i < n) {
    const Lanes<T> value = exp_lanes(load_part(x + i, n - i, kMinusInfinity<T>) - shifts);
    store_part(value, y + i, n - i);
    sums += value;
  }
  return sum_lanes<T>(sums);
}

}  // namespace

// 4 n is the rough cost of one row, by which parallel_ranges() decides whether threads are worth it.

template <class T>
void softmax_forward(Cpu, bool is_log, Index rows, Index n, const T* x, T* y) {
  parallel_ranges(rows, 4 * n, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const T* px = x + row * n;
      T* line = y + row * n;
      const T shift = shift_of(n, px), total = exp_and_sum(n, shift, px, line);
      if (is_log) {
        const T log_total = total == T(0) ? T(0) : std::log(total);
#pragma omp simd
        for (Index i = 0; i < n; ++i) line[i] = (px[i] - shift) - log_total;
      } else {
        const T scale = total == T(0) ? T(0) : T(1) / total;
#pragma omp simd
        for (Index i = 0; i < n; ++i) line[i] *= scale;
      }
    }
  });
}

template <class T>
void softmax_backward(Cpu, bool is_log, Index rows, Index n, const T* y, const T* dy, Write<T> dx) {
  using V = Lanes<T>;
  parallel_ranges(rows, (is_log ? 4 : 2) * n, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const T *py = y + row * n, *pd = dy + row * n;
      const Write<T> line{dx.to + row * n, dx.add};
      const V total(is_log ? total_simd(n, pd) : dot_simd(n, py, pd));
      if (is_log) {
        write_simd(
            0, n, line, [&](const V& a, const V& b) { return b - exp_lanes(a) * total; }, py, pd);
      } else {
        write_simd(
            0, n, line, [&](const V& a, const V& b) { return a * (b - total); }, py, pd);
      }
    }
  });
}

TAPEFORMER_CPU_KERNEL(softmax_forward);
TAPEFORMER_CPU_KERNEL(softmax_backward);

}  // namespace tapeformer::kernels
