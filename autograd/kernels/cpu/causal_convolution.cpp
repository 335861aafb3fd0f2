#include <tapeformer/autograd/kernels/causal_convolution.h>
#include <tapeformer/autograd/kernels/cpu/sum_by_halves.h>
#include <tapeformer/autograd/kernels/normalization.h>

#include <algorithm>
#include <type_traits>

namespace tapeformer::kernels {
namespace {

constexpr int kTapsAtOnce = 4;

/// Calls use(N, first) for the taps [first, first + N), at most kTapsAtOnce of them; N is a constant, so that
/// loops over these taps are unrolled.
template <class Use>
void for_taps(Index taps, const Use& use) {
  Index first = 0;
  for (; first + kTapsAtOnce <= taps; first += kTapsAtOnce)
    use(std::integral_constant<int, kTapsAtOnce>(), first);
  switch (taps - first) {
    case 1: return use(std::integral_constant<int, 1>(), first);
    case 2: return use(std::integral_constant<int, 2>(), first);
    case 3: return use(std::integral_constant<int, 3>(), first);
    default: return;
  }
}

/// y[i] = x[i] + sum over j < taps of weight[j][i] x[i + j step], for one row.
template <class T>
void convolve_row(Index taps, Index width, Index step, const T* weight, const T* x, Write<T> y) {
  for_taps(taps, [&](auto count, Index first) {
    const T *w = weight + first * width, *from = x + first * step;
    const auto run = [&](const auto& start, Write<T> to) {
#pragma omp simd
      for (Index i = 0; i < width; ++i) {
        T sum = start(i);
        for (int j = 0; j < count; ++j) sum += w[j * width + i] * from[i + j * step];
        to.put(i, sum);
      }
    };
    if (first == 0) {
      run([&](Index i) { return x[i]; }, y);
    } else {
      run([](Index) { return T(0); }, Write<T>{y.to, true});
    }
  });
}

/// sums[j][i] += dy[i] x[i - j width], for one row.
template <class T>
void add_products(Index taps, Index width, const T* dy, const T* x, T* sums) {
  for_taps(taps, [&](auto count, Index first) {
    const T* from = x - first * width;
    T* to = sums + first * width;
#pragma omp simd
    for (Index i = 0; i < width; ++i) {
      for (int j = 0; j < count; ++j) to[j * width + i] += dy[i] * from[i - j * width];
    }
  });
}

}  // namespace

template <class T>
void causal_convolution_forward(Cpu, const Convolution& s, const T* x, const T* weight, T* y) {
  parallel_ranges(s.rows(), (s.taps + 1) * s.width, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const Index taps = std::min(s.taps, row % s.length + 1);
      convolve_row(taps, s.width, -s.width, weight, x + row * s.width, Write<T>{y + row * s.width, false});
    }
  });
}

template <class T>
void causal_convolution_backward(Cpu, const Convolution& s, const T* x, const T* weight, const T* dy,
                                 Wide<T>* partials, Write<T> dx) {
  const auto run_rows = [&](Index from, Index to, T* sums) {
    if (sums != nullptr) std::fill_n(sums, s.taps * s.width, T(0));
    for (Index row = from; row < to; ++row) {
      const Index t = row % s.length, at = row * s.width;
      if (dx) {
        const Index taps = std::min(s.taps, s.length - t);
        convolve_row(taps, s.width, s.width, weight, dy + at, Write<T>{dx.to + at, dx.add});
      }
      if (sums != nullptr) add_products(std::min(s.taps, t + 1), s.width, dy + at, x + at, sums);
    }
  };
  const Index parts = normalize_parts(Cpu{}, s.rows(), s.width);
  sum_parts(s.rows(), parts, s.rows() * s.width * (s.taps + 1) / parts, s.taps * s.width, run_rows, partials);
}

TAPEFORMER_CPU_KERNEL(causal_convolution_forward);
TAPEFORMER_CPU_KERNEL(causal_convolution_backward);

}  // namespace tapeformer::kernels
