#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/loss.h>

#include <algorithm>
#include <cmath>

namespace tapeformer::kernels {

template <class T>
void cross_entropy_forward(Cpu, const CrossEntropy& s, const std::int32_t* targets, const T* logits,
                           Wide<T>* statistics, double* losses) {
  parallel_ranges(s.rows, 4 * s.n, [&](Index from, Index to) {
    for (Index row = from; row < to; ++row) {
      losses[row] = 0;
      if (targets[row] == s.ignored) continue;
      const T* x = logits + row * s.lead;
      const T largest = max_simd(s.n, x);
      const Lanes<T> shift(largest);
      const T total = sum_simd<T>(
          s.n, [&](const Lanes<T>& v) { return xsimd::exp(v - shift); }, x);
      statistics[2 * row] = largest;
      statistics[2 * row + 1] = total;
      // log(sum exp x) - x_target, and the same for the mean over classes
      const double log_total = std::log(static_cast<double>(total));
      losses[row] = (1 - s.smoothing) * (log_total - (static_cast<double>(x[targets[row]]) - largest));
      if (s.smoothing != 0) {
        const T sum = sum_simd<T>(
            s.n, [&](const Lanes<T>& v) { return v - shift; }, x);
        losses[row] += s.smoothing * (log_total - static_cast<double>(sum) / static_cast<double>(s.n));
      }
    }
  });
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
      write_simd(
          0, s.n, dx, [&](const Lanes<T>& v) { return xsimd::exp(v - shift) * factor - uniform; }, x);
      dx.to[targets[row]] -= scale * static_cast<T>(1 - s.smoothing);
    }
  });
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
  const Lanes<T> factors(*factor);
  parallel_ranges(count, 1, [&](Index from, Index to) {
    write_simd(
        from, to, dx, [&](const Lanes<T>& v) { return factors * v; }, gradient);
  });
}

#define INSTANTIATE(T)                                                                                       \
  template void cross_entropy_forward(Cpu, const CrossEntropy&, const std::int32_t*, const T*, T*, double*); \
  template void mean_loss(Cpu, Index, const double*, const std::int32_t*, T*);                               \
  template void cross_entropy_backward(Cpu, const CrossEntropy&, const std::int32_t*, const std::int32_t*,   \
                                       const T*, const T*, const T*, Write<T>);                              \
  template void cross_entropy_with_gradient(Cpu, const CrossEntropy&, const std::int32_t*,                   \
                                            const std::int32_t*, T*, T*, double*);                           \
  template void scale_gradient(Cpu, Index, const T*, const T*, Write<T>);
TAPEFORMER_CPU_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
