#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/optim.h>

#include <xsimd/xsimd.hpp>

#include <cmath>
#include <type_traits>

namespace tapeformer::kernels {
namespace {

/// m, v and x of AdamW after a step, on batches or on single values.
template <class T>
struct AdamWUpdate : AdamWFactors<T> {
  using AdamWFactors<T>::AdamWFactors;

  template <class V>
  void operator()(const V& gradient, V& m, V& v, V& x) const {
    using std::sqrt;
    using xsimd::sqrt;
    const V g = gradient * V(this->scale);
    m = m + V(this->weight1) * (g - m);
    v = V(this->beta2) * v + V(this->weight2) * g * g;
    x = x * V(this->keep) - V(this->step_size) * m / (sqrt(v) / V(this->root_correction2) + V(this->epsilon));
  }
};

template <class T>
void refresh(Index from, Index to, const T* value, BFloat16* shadow) {
  for (Index i = from; shadow != nullptr && i < to; ++i) shadow[i] = BFloat16(value[i]);
}

/// Apart from its caller because g++ 12 does not vectorise a reduction inside a lambda.
template <class T>
double sum_of_squares_serial(Index count, const T* x) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace

template <class T>
void adamw_step(Cpu, Index count, const AdamWStep& step, const T* gradient, T* first_moment, T* second_moment,
                T* value, BFloat16* shadow) {
  using Batch = xsimd::batch<T>;
  constexpr auto kLanes = static_cast<Index>(Batch::size);
  const AdamWUpdate<T> update(step);
  const Index batches = count / kLanes;
  parallel_ranges(batches, kLanes, [&](Index from, Index to) {
    for (Index i = from * kLanes; i < to * kLanes; i += kLanes) {
      Batch m = Batch::load_unaligned(first_moment + i), v = Batch::load_unaligned(second_moment + i);
      Batch x = Batch::load_unaligned(value + i);
      update(Batch::load_unaligned(gradient + i), m, v, x);
      m.store_unaligned(first_moment + i);
      v.store_unaligned(second_moment + i);
      x.store_unaligned(value + i);
    }
    refresh(from * kLanes, to * kLanes, value, shadow);
  });
  for (Index i = batches * kLanes; i < count; ++i)
    update(gradient[i], first_moment[i], second_moment[i], value[i]);
  refresh(batches * kLanes, count, value, shadow);
}

template <class T>
void sgd_step(Cpu, Index count, const SgdStep& step, const T* gradient, T* velocity, T* value,
              BFloat16* shadow) {
  const T rate = static_cast<T>(step.learning_rate), keep = static_cast<T>(step.momentum),
          decay = static_cast<T>(step.weight_decay), scale = static_cast<T>(step.gradient_scale);
  parallel_ranges(count, 1, [=](Index from, Index to) {
    if (velocity == nullptr) {
#pragma omp simd
      for (Index i = from; i < to; ++i) value[i] -= rate * (gradient[i] * scale + decay * value[i]);
    } else {
#pragma omp simd
      for (Index i = from; i < to; ++i) {
        velocity[i] = keep * velocity[i] + (gradient[i] * scale + decay * value[i]);
        value[i] -= rate * velocity[i];
      }
    }
    refresh(from, to, value, shadow);
  });
}

template <class T>
void sum_of_squares(Cpu, Index count, const T* x, double* sums) {
  parallel_ranges(kSquareParts, count / kSquareParts, [&](Index from, Index to) {
    for (Index part = from; part < to; ++part) {
      const Index begin = count * part / kSquareParts;
      sums[part] = sum_of_squares_serial(count * (part + 1) / kSquareParts - begin, x + begin);
    }
  });
}

template <class T>
void scale_in_place(Cpu, Index count, double factor, T* x) {
  const T by = static_cast<T>(factor);
  parallel_ranges(count, 1, [=](Index from, Index to) {
#pragma omp simd
    for (Index i = from; i < to; ++i) x[i] *= by;
  });
}

#define INSTANTIATE(T)                                                                     \
  template void adamw_step(Cpu, Index, const AdamWStep&, const T*, T*, T*, T*, BFloat16*); \
  template void sgd_step(Cpu, Index, const SgdStep&, const T*, T*, T*, BFloat16*);         \
  template void sum_of_squares(Cpu, Index, const T*, double*);                             \
  template void scale_in_place(Cpu, Index, double, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
