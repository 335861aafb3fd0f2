#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd_math.h>
#include <tapeformer/autograd/kernels/elementwise.h>

#include <algorithm>
#include <atomic>
#include <cmath>

namespace tapeformer::kernels {
namespace {

/// Calls row(offset_a, offset_b, offset_c, offset_y, length) for every run of the last axis, or for a part of
/// it.
template <class Row>
void for_each_run(const Broadcast& s, const Row& row) {
  const int last = s.axes - 1;
  const Index length = s.sizes[last], total = s.elements();
  if (total == 0) return;
  if (total == length) {
    return parallel_ranges(length, 1, [&](Index from, Index to) {
      row(from * s.strides_a[last], from * s.strides_b[last], from * s.strides_c[last], from, to - from);
    });
  }
  parallel_ranges(total / length, length, [&](Index from, Index to) {
    for (Index run = from; run < to; ++run) {
      const Broadcast::Offsets at = s.offsets(run, last);
      row(at.a, at.b, at.c, run * length, length);
    }
  });
}

/// y = f(a, b)
template <class T, class F>
void compare(const Broadcast& s, const T* a, const T* b, bool* y, const F& f) {
  const int last = s.axes - 1;
  const Index step_a = s.strides_a[last], step_b = s.strides_b[last];
  for_each_run(s, [&](Index from_a, Index from_b, Index, Index from_y, Index length) {
    for (Index i = 0; i < length; ++i) y[from_y + i] = f(a[from_a + i * step_a], b[from_b + i * step_b]);
  });
}

/// y = c ? a : b. Inlined with constant steps, and the condition read as bytes, so that the loop is
/// vectorised (g++ 12 branches on a bool).
template <class T>
inline void select_run(Index length, const std::uint8_t* c, const T* a, Index step_a, const T* b,
                       Index step_b, T* y) {
#pragma omp simd
  for (Index i = 0; i < length; ++i) {
    const T from_a = a[i * step_a], from_b = b[i * step_b];
    y[i] = c[i] != 0 ? from_a : from_b;
  }
}

}  // namespace

template <class T>
void unary_forward(Cpu, Unary f, Index count, const T* x, T* y) {
  with_function(f, [&](auto function) {
    const auto value = [=](const Lanes<T>& at) { return function.value(at); };
    parallel_ranges(count, 4, [&](Index from, Index to) { map_simd(from, to, y, value, x); });
  });
}

template <class T>
void unary_backward(Cpu, Unary f, Index count, const T* saved, const T* dy, Write<T> dx) {
  with_function(f, [&](auto function) {
    const auto gradient = [=](const Lanes<T>& at, const Lanes<T>& d) { return function.gradient(at, d); };
    parallel_ranges(count, 4, [&](Index from, Index to) { write_simd(from, to, dx, gradient, saved, dy); });
  });
}

template <class T>
void unary_forward_with_derivative(Cpu, Unary f, Index count, T* x, T* y) {
  with_function(f, [&](auto function) {
    if constexpr (!decltype(function)::saves_output) {
      parallel_ranges(count, 4, [&](Index from, Index to) {
        Index i = from;
        for (; i + kLanes<T> <= to; i += kLanes<T>) {
          const auto at = function.at(Lanes<T>::load_unaligned(x + i));
          at.value.store_unaligned(y + i);
          at.derivative.store_unaligned(x + i);
        }
        if (i == to) return;
        const auto at = function.at(load_part(x + i, to - i, T(1)));
        store_part(at.value, y + i, to - i);
        store_part(at.derivative, x + i, to - i);
      });
    }
  });
}

template <class T>
void binary(Cpu, Binary f, const Broadcast& sizes, const T* a, const T* b, T* y) {
  const int last = sizes.axes - 1;
  const bool runs_a = sizes.strides_a[last] != 0, runs_b = sizes.strides_b[last] != 0;
  with_operator(f, [&](const auto& op, const char*) {
    for_each_run(sizes, [&](Index from_a, Index from_b, Index, Index from_y, Index length) {
      const T *pa = a + from_a, *pb = b + from_b;
      T* py = y + from_y;
      if (runs_a && runs_b) {
#pragma omp simd
        for (Index i = 0; i < length; ++i) py[i] = op(pa[i], pb[i]);
      } else if (runs_a) {
        const T constant = *pb;
#pragma omp simd
        for (Index i = 0; i < length; ++i) py[i] = op(pa[i], constant);
      } else {
        const T constant = *pa;
        const Index step = runs_b ? 1 : 0;
        for (Index i = 0; i < length; ++i) py[i] = op(constant, pb[i * step]);
      }
    });
  });
}

template <class T>
void affine(Cpu, Index count, double factor, double offset, const T* x, T* y) {
  const T a = static_cast<T>(factor), b = static_cast<T>(offset);
  parallel_ranges(count, 1, [&](Index from, Index to) {
#pragma omp simd
    for (Index i = from; i < to; ++i) y[i] = a * x[i] + b;
  });
}

template <class T>
void power(Cpu, Index count, double exponent, const T* x, T* y) {
  parallel_ranges(count, 16, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) y[i] = std::pow(x[i], static_cast<T>(exponent));
  });
}

template <class T>
void clamp(Cpu, Index count, double low, double high, const T* x, T* y) {
  const T least = static_cast<T>(low), most = static_cast<T>(high);
  parallel_ranges(count, 1, [&](Index from, Index to) {
#pragma omp simd
    for (Index i = from; i < to; ++i) y[i] = x[i] < least ? least : x[i] > most ? most : x[i];
  });
}

template <class T>
void where(Cpu, const Broadcast& s, const bool* condition, const T* a, const T* b, T* y) {
  const int last = s.axes - 1;
  const Index step_a = s.strides_a[last], step_b = s.strides_b[last];
  const bool runs = s.strides_c[last] != 0;
  for_each_run(s, [&](Index from_a, Index from_b, Index from_c, Index from_y, Index length) {
    const auto* pc = reinterpret_cast<const std::uint8_t*>(condition + from_c);
    const T *pa = a + from_a, *pb = b + from_b;
    T* py = y + from_y;
    if (!runs) {  // one operand for the whole run
      const T* from = *pc != 0 ? pa : pb;
      const Index step = *pc != 0 ? step_a : step_b;
      if (step != 0) return void(std::copy_n(from, length, py));
      return void(std::fill_n(py, length, *from));
    }
    if (step_a != 0 && step_b == 0) return select_run(length, pc, pa, 1, pb, 0, py);
    if (step_a == 0 && step_b != 0) return select_run(length, pc, pa, 0, pb, 1, py);
    select_run(length, pc, pa, step_a, pb, step_b, py);
  });
}

template <class T>
void equal(Cpu, const Broadcast& s, const T* a, const T* b, bool* y) {
  compare(s, a, b, y, std::equal_to<>());
}

void logical_and(Cpu, const Broadcast& s, const bool* a, const bool* b, bool* y) {
  compare(s, a, b, y, std::logical_and<>());
}

template <class T>
void add_in_place(Cpu, Index count, const T* x, T* sum) {
  parallel_ranges(count, 1, [&](Index from, Index to) {
#pragma omp simd
    for (Index i = from; i < to; ++i) sum[i] += x[i];
  });
}

template <class T>
void first_non_finite(Cpu, Index count, const T* x, bool nan_only, Index* first) {
  std::atomic<Index> least{count};
  parallel_ranges(count, 1, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) {
      if (nan_only ? !std::isnan(x[i]) : std::isfinite(x[i])) continue;
      Index known = least.load();
      while (i < known && !least.compare_exchange_weak(known, i)) {
      }
      return;
    }
  });
  *first = least == count ? -1 : least.load();
}

TAPEFORMER_CPU_KERNEL(unary_forward);
TAPEFORMER_CPU_KERNEL(unary_backward);
TAPEFORMER_CPU_KERNEL(binary);
TAPEFORMER_CPU_KERNEL(affine);
TAPEFORMER_CPU_KERNEL(power);
TAPEFORMER_CPU_KERNEL(clamp);
TAPEFORMER_CPU_KERNEL(where);
TAPEFORMER_CPU_KERNEL(equal);
TAPEFORMER_CPU_KERNEL(add_in_place);
TAPEFORMER_CPU_KERNEL(first_non_finite);
template void unary_forward_with_derivative(Cpu, Unary, Index, float*, float*);
template void unary_forward_with_derivative(Cpu, Unary, Index, double*, double*);

}  // namespace tapeformer::kernels
