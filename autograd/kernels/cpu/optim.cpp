#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/cpu/sum_of_squares.h>
#include <tapeformer/autograd/kernels/optim.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tapeformer::kernels {
namespace {

constexpr Index kSquareParts = 64;

template <class T>
void refresh(Index from, Index to, const T* value, BFloat16* shadow) {
  for (Index i = from; shadow != nullptr && i < to; ++i) shadow[i] = BFloat16(value[i]);
}

template <class T, class Step>
void update_elements(const StepTensor& x, const StepRule<T, Step>& by, double factor) {
  const T scale = static_cast<T>(factor);
  const T* gradient = static_cast<const T*>(x.gradient);
  T *first = static_cast<T*>(x.state1), *second = static_cast<T*>(x.state2);
  T* value = static_cast<T*>(x.value);
  const Index vectors = x.count / kLanes<T>;
  parallel_ranges(vectors, kLanes<T>, [&](Index from, Index to) {
    for (Index i = from * kLanes<T>; i < to * kLanes<T>; i += kLanes<T>) {
      Lanes<T> m(T(0)), v(T(0)), y = Lanes<T>::load_unaligned(value + i);
      if (first != nullptr) m = Lanes<T>::load_unaligned(first + i);
      if (second != nullptr) v = Lanes<T>::load_unaligned(second + i);
      by.update(Lanes<T>::load_unaligned(gradient + i) * Lanes<T>(scale), m, v, y);
      if (first != nullptr) m.store_unaligned(first + i);
      if (second != nullptr) v.store_unaligned(second + i);
      y.store_unaligned(value + i);
    }
    refresh(from * kLanes<T>, to * kLanes<T>, value, x.shadow);
  });
  for (Index i = vectors * kLanes<T>; i < x.count; ++i) {
    T none1 = 0, none2 = 0;
    by.update(gradient[i] * scale, first != nullptr ? first[i] : none1, second != nullptr ? second[i] : none2,
              value[i]);
  }
  refresh(vectors * kLanes<T>, x.count, value, x.shadow);
}

/// Adds up equal parts, whose number and order do not depend on the number of threads.
template <class T>
double sum_of_squares_in_parts(Index count, const T* x) {
  double sums[kSquareParts];
  parallel_ranges(kSquareParts, count / kSquareParts, [&](Index from, Index to) {
    for (Index part = from; part < to; ++part) {
      const Index begin = count * part / kSquareParts;
      sums[part] = sum_of_squares(count * (part + 1) / kSquareParts - begin, x + begin);
    }
  });
  return std::accumulate(sums, sums + kSquareParts, 0.0);
}

}  // namespace

template <class T>
void gradient_norm(Cpu, const StepTensors& all, double share, double max_norm, double* norm, double* factor) {
  double sum = 0;
  for (Index i = 0; i < all.tensor_count; ++i)
    sum += sum_of_squares_in_parts(all.tensors[i].count, static_cast<const T*>(all.tensors[i].gradient));
  *norm = share * std::sqrt(sum);
  *factor = step_factor(*norm, share, max_norm);
}

template <class T, class Step>
void optimizer_step(Cpu, const StepTensors& all, const Step* steps, Index, const double* factor) {
  if (std::isnan(*factor)) return;
  for (Index i = 0; i < all.tensor_count; ++i)
    update_elements(all.tensors[i], StepRule<T, Step>(steps[all.tensors[i].setting]), *factor);
}

template <class T>
void average_step(Cpu, const StepTensors& all, double weight, const double* norm) {
  if (!std::isfinite(*norm)) return;
  const T by = static_cast<T>(weight);
  for (Index t = 0; t < all.tensor_count; ++t) {
    const T* value = static_cast<const T*>(all.tensors[t].value);
    T* average = static_cast<T*>(all.tensors[t].state1);
    parallel_ranges(all.tensors[t].count, 1, [=](Index from, Index to) {
#pragma omp simd
      for (Index i = from; i < to; ++i) average[i] += by * (value[i] - average[i]);
    });
  }
}

template <class T>
void exchange_values(Cpu, const StepTensors& all) {
  for (Index i = 0; i < all.tensor_count; ++i) {
    const StepTensor& x = all.tensors[i];
    T *value = static_cast<T*>(x.value), *other = static_cast<T*>(x.state1);
    std::swap_ranges(value, value + x.count, other);
    refresh(0, x.count, value, x.shadow);
  }
}

template <class T>
void scale_in_place(Cpu, Index count, double factor, T* x) {
  const T by = static_cast<T>(factor);
  parallel_ranges(count, 1, [=](Index from, Index to) {
#pragma omp simd
    for (Index i = from; i < to; ++i) x[i] *= by;
  });
}

#define INSTANTIATE_STEP(Step, T) \
  template void optimizer_step<T>(Cpu, const StepTensors&, const Step*, Index, const double*);
TAPEFORMER_CPU_KERNEL(gradient_norm);
TAPEFORMER_CPU_KERNEL(average_step);
TAPEFORMER_CPU_KERNEL(exchange_values);
TAPEFORMER_CPU_KERNEL(scale_in_place);

#define INSTANTIATE(T) TAPEFORMER_STEPS(INSTANTIATE_STEP, T)
TAPEFORMER_CPU_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
