#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/kernels/muon.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapeformer::kernels {
namespace {

template <class T>
double sum_of_squares(Index count, const T* x) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

/// One product of matrices without gaps.
template <class T>
void multiply(Index m, Index n, Index k, const T* a, bool transpose_a, const T* b, bool transpose_b,
              double scale, T* c) {
  Gemm s;
  s.m = m, s.n = n, s.k = k;
  s.transpose_a = transpose_a, s.transpose_b = transpose_b;
  s.lda = transpose_a ? m : k, s.ldb = transpose_b ? k : n, s.ldc = n;
  s.scale = scale;
  gemm(Cpu{}, s, a, b, Write<T>{c, false});
}

/// Within a team of threads on the calling one alone, else on all.
template <class T>
void orthogonalize(const NewtonSchulz& s, T* x) {
  struct Buffers {};
  const bool is_wide = s.rows <= s.columns;
  const Index elements = s.rows * s.columns, side = std::min(s.rows, s.columns);
  T* gram = thread_memory<Buffers, T>(2 * side * side + elements);
  T *polynomial = gram + side * side, *other = polynomial + side * side;
  const auto norm = static_cast<T>(std::max(std::sqrt(sum_of_squares(elements, x)), s.epsilon));
  T *from = x, *to = other;
  if (s.steps % 2 == 1) std::swap(from, to);  // so that the last step writes to x
  for (Index i = 0; i < elements; ++i) from[i] = x[i] / norm;
  for (int step = 0; step < s.steps; ++step) {
    multiply(side, side, is_wide ? s.columns : s.rows, from, !is_wide, from, is_wide, 1, gram);
    multiply(side, side, side, gram, false, gram, false, kQuintic[2], polynomial);
    for (Index i = 0; i < side * side; ++i) polynomial[i] += static_cast<T>(kQuintic[1]) * gram[i];
    for (Index i = 0; i < side; ++i) polynomial[i * side + i] += static_cast<T>(kQuintic[0]);
    if (is_wide) {
      multiply(side, s.columns, side, polynomial, false, from, false, 1, to);
    } else {
      multiply(s.rows, side, side, from, false, polynomial, false, 1, to);
    }
    std::swap(from, to);
  }
}

}  // namespace

template <class T>
void muon_momentum(Cpu, const StepTensors& all, double momentum, bool nesterov, const double* factor) {
  if (std::isnan(*factor)) return;
  const T scale = static_cast<T>(*factor), keep = static_cast<T>(momentum);
  for (Index t = 0; t < all.tensor_count; ++t) {
    const StepTensor& x = all.tensors[t];
    const T* gradient = static_cast<const T*>(x.gradient);
    T *moment = static_cast<T*>(x.state1), *update = static_cast<T*>(x.state2);
    parallel_ranges(x.count, 1, [=](Index from, Index to) {
#pragma omp simd
      for (Index i = from; i < to; ++i) {
        const T g = gradient[i] * scale, m = g + keep * (moment[i] - g);
        moment[i] = m;
        update[i] = nesterov ? g + keep * (m - g) : m;
      }
    });
  }
}

/// Matrices run one per thread if there are enough of them.
template <class T>
void newton_schulz(Cpu, const NewtonSchulz& s, T* x) {
  const Index elements = s.rows * s.columns;
  if (elements == 0) return;
  const auto run = [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) orthogonalize(s, x + i * elements);
  };
  if (s.count >= omp_get_max_threads()) {
    parallel_ranges(s.count, kParallelWork, run);
  } else {
    run(0, s.count);
  }
}

template <class T>
void muon_step(Cpu, const StepTensors& all, const MuonStep* steps, Index, const double* factor) {
  if (std::isnan(*factor)) return;
  for (Index t = 0; t < all.tensor_count; ++t) {
    const StepTensor& x = all.tensors[t];
    const MuonStep& step = steps[x.setting];
    const T rate = static_cast<T>(step.learning_rate), keep = static_cast<T>(1 - step.weight_decay),
            cautious = static_cast<T>(1 - step.weight_decay - step.cautious_decay);
    const T* update = static_cast<const T*>(x.state2);
    T* value = static_cast<T*>(x.value);
    BFloat16* shadow = x.shadow;
    parallel_ranges(x.count, 1, [=](Index from, Index to) {
#pragma omp simd
      for (Index i = from; i < to; ++i)
        value[i] = value[i] * (update[i] * value[i] > 0 ? cautious : keep) - rate * update[i];
      for (Index i = from; shadow != nullptr && i < to; ++i) shadow[i] = BFloat16(value[i]);
    });
  }
}

#define INSTANTIATE(T)                                                                  \
  template void muon_momentum<T>(Cpu, const StepTensors&, double, bool, const double*); \
  template void newton_schulz(Cpu, const NewtonSchulz&, T*);                            \
  template void muon_step<T>(Cpu, const StepTensors&, const MuonStep*, Index, const double*);
TAPEFORMER_CPU_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
