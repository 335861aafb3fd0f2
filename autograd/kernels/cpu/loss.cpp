#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/loss.h>

#include <algorithm>
#include <cmath>

namespace tapeformer::kernels {
namespace {

/// The logits as they are.
struct Uncapped {
  template <class V>
  V operator()(const V& x) const {
    return x;
  }
  template <class V>
  V gradient(const V&, const V& dy) const {
    return dy;
  }
};

/// y = c tanh(x / c), and x's gradient from y.
template <class T>
struct Capped {
  T cap;
  T operator()(T x) const { return cap * std::tanh(x / cap); }
  Lanes<T> operator()(const Lanes<T>& x) const { return Lanes<T>(cap) * xsimd::tanh(x / Lanes<T>(cap)); }
  template <class V>
  V gradient(const V& y, const V& dy) const {
    const V share = y / V(cap);
    return dy * (V(1) - share * share);
  }
};

template <class T, class Use>
void with_cap(const CrossEntropy& s, const Use& use) {
  if (s.softcap > 0) return use(Capped<T>{static_cast<T>(s.softcap)});
  use(Uncapped{});
}

template <class T, class Cap>
void forward_rows(const CrossEntropy& s, const Cap& capped, const std::int32_t* targets, const T* logits,
                  T* statistics, double* losses) {
  parallel_ranges(s.rows, 4 * s.n, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      losses[row] = 0;
      if (targets[row] == s.ignored) continue;
      const T* x = logits + row * s.lead;
      const T largest = capped(max_simd(s.n, x));
      const Lanes<T> shift(largest);
      const T total = sum_simd<T>(
          s.n, [&](const Lanes<T>& v) { return exp_lanes(capped(v) - shift); }, x);
      statistics[2 * row] = largest;
      statistics[2 * row + 1] = total;
      // log(sum exp x) - x_target, and the same for the mean over classes
      const double log_total = std::log(static_cast<double>(total));
      losses[row] =
          (1 - s.smoothing) * (log_total - (static_cast<double>(capped(x[targets[row]])) - largest));
      if (s.smoothing != 0) {
        const T sum = sum_simd<T>(
            s.n, [&](const Lanes<T>& v) { return capped(v) - shift; }, x);
        losses[row] += s.smoothing * (log_total - static_cast<double>(sum) / static_cast<double>(s.n));
      }
    }
  });
}

/// dlogits: the gradient times `scale` in every counted row, 0 in the others.
template <class T, class Cap>
void backward_rows(const CrossEntropy& s, const Cap& capped, T scale, const std::int32_t* targets,
                   const T* logits, const T* statistics, Write<T> dlogits) {
  const Lanes<T> uniform(scale * static_cast<T>(s.smoothing / static_cast<double>(s.n)));
  parallel_ranges(s.rows, 4 * s.n, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      const T* x = logits + row * s.lead;
      const Write<T> dx{dlogits.to + row * s.lead, dlogits.add};
      if (targets[row] == s.ignored) {
        if (!dx.add) std::fill(dx.to, dx.to + s.n, T(0));
        continue;
      }
      const Lanes<T> shift(statistics[2 * row]), factor(scale / statistics[2 * row + 1]);
      const T of_target = capped(x[targets[row]]);  // before dx, which may be the same memory
      write_simd(
          0, s.n, dx,
          [&](const Lanes<T>& v) {
            const Lanes<T> y = capped(v);
            return capped.gradient(y, Lanes<T>(exp_lanes(y - shift) * factor - uniform));
          },
          x);
      dx.to[targets[row]] -= capped.gradient(of_target, scale * static_cast<T>(1 - s.smoothing));
    }
  });
}

}  // namespace

template <class T>
void cross_entropy_forward(Cpu, const CrossEntropy& s, const std::int32_t* targets, const T* logits,
                           Wide<T>* statistics, double* losses) {
  with_cap<T>(s, [&](const auto& capped) { forward_rows(s, capped, targets, logits, statistics, losses); });
}

template <class T>
void mean_loss(Cpu, Index rows, const double* losses, const std::int32_t* counted, T* loss) {
  double sum = 0;
  for (Index row = 0; row < rows; ++row) sum += losses[row];
  *loss = *counted == 0 ? T(0) : static_cast<T>(sum / static_cast<double>(*counted));
}

template <class T>
void cross_entropy_backward(Cpu, const CrossEntropy& s, const std::int32_t* targets,
                            const std::int32_t* counted, const T* logits, const Wide<T>* statistics,
                            const Wide<T>* dloss, Write<T> dlogits) {
  const T seed = dloss == nullptr ? T(1) : *dloss;
  const T scale = *counted == 0 ? T(0) : static_cast<T>(seed / static_cast<double>(*counted));
  with_cap<T>(
      s, [&](const auto& capped) { backward_rows(s, capped, scale, targets, logits, statistics, dlogits); });
}

template <class T>
void cross_entropy_with_gradient(Cpu on, const CrossEntropy& s, const std::int32_t* targets,
                                 const std::int32_t* counted, T* logits, Wide<T>* statistics,
                                 double* losses) {
  cross_entropy_forward(on, s, targets, logits, statistics, losses);
  cross_entropy_backward(on, s, targets, counted, logits, statistics, static_cast<const T*>(nullptr),
                         Write<T>{logits, false});
}

template <class T>
void scale_gradient(Cpu, Index count, const Wide<T>* factor, const T* gradient, Write<T> dx) {
  parallel_ranges(count, 1, [&](Index from, Index to) {
    write_scaled(to - from, *factor, gradient + from, Write<T>{dx.to + from, dx.add});
  });
}

TAPEFORMER_CPU_KERNEL(cross_entropy_forward);
TAPEFORMER_CPU_KERNEL(mean_loss);
TAPEFORMER_CPU_KERNEL(cross_entropy_backward);
TAPEFORMER_CPU_KERNEL(cross_entropy_with_gradient);
TAPEFORMER_CPU_KERNEL(scale_gradient);

}  // namespace tapeformer::kernels
