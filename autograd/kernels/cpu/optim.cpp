#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/optim.h>

#include <xsimd/xsimd.hpp>

#include <cmath>
#include <numeric>

namespace tapeformer::kernels {
namespace {

constexpr Index kSquareParts = 64;

/// m, v and x of AdamW after a step, on batches or on single values.
template <class T>
struct AdamWUpdate : AdamWFactors<T> {
  AdamWUpdate(const AdamWStep& step, double factor) : AdamWFactors<T>(step), scale(static_cast<T>(factor)) {}
  T scale;

  template <class V>
  void operator()(const V& gradient, V& m, V& v, V& x) const {
    using std::sqrt;
    using xsimd::sqrt;
    const V g = gradient * V(scale);
    m = this->first_moment(m, g);
    v = V(this->beta2) * v + V(this->weight2) * g * g;
    x = x * V(this->keep) - V(this->step_size) * m / (sqrt(v) / V(this->root_correction2) + V(this->epsilon));
  }
};

template <class T>
void refresh(Index from, Index to, const T* value, BFloat16* shadow) {
  for (Index i = from; shadow != nullptr && i < to; ++i) shadow[i] = BFloat16(value[i]);
}

/// A function of its own because g++ 12 does not vectorise a reduction inside a lambda.
template <class T>
double sum_of_squares_serial(Index count, const T* x) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <class T>
void update_adamw(const StepTensor& x, const AdamWStep& step, double factor) {
  using Batch = xsimd::batch<T>;
  constexpr auto kLanes = static_cast<Index>(Batch::size);
  const AdamWUpdate<T> update(step, factor);
  const T* gradient = static_cast<const T*>(x.gradient);
  T *first_moment = static_cast<T*>(x.state1), *second_moment = static_cast<T*>(x.state2);
  T* value = static_cast<T*>(x.value);
  const Index batches = x.count / kLanes;
  parallel_ranges(batches, kLanes, [&](Index from, Index to) {
    for (Index i = from * kLanes; i < to * kLanes; i += kLanes) {
      Batch m = Batch::load_unaligned(first_moment + i), v = Batch::load_unaligned(second_moment + i);
      Batch y = Batch::load_unaligned(value + i);
      update(Batch::load_unaligned(gradient + i), m, v, y);
      m.store_unaligned(first_moment + i);
      v.store_unaligned(second_moment + i);
      y.store_unaligned(value + i);
    }
    refresh(from * kLanes, to * kLanes, value, x.shadow);
  });
  for (Index i = batches * kLanes; i < x.count; ++i)
    update(gradient[i], first_moment[i], second_moment[i], value[i]);
  refresh(batches * kLanes, x.count, value, x.shadow);
}

template <class T>
void update_sgd(const StepTensor& x, const SgdStep& step, double factor) {
  const T rate = static_cast<T>(step.learning_rate), keep = static_cast<T>(step.momentum),
          decay = static_cast<T>(step.weight_decay), scale = static_cast<T>(factor);
  const T* gradient = static_cast<const T*>(x.gradient);
  T *velocity = static_cast<T*>(x.state1), *value = static_cast<T*>(x.value);
  BFloat16* shadow = x.shadow;
  parallel_ranges(x.count, 1, [=](Index from, Index to) {
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

/// In equal parts, whose number and order do not depend on the number of threads.
template <class T>
double sum_of_squares(Index count, const T* x) {
  double sums[kSquareParts];
  parallel_ranges(kSquareParts, count / kSquareParts, [&](Index from, Index to) {
    for (Index part = from; part < to; ++part) {
      const Index begin = count * part / kSquareParts;
      sums[part] = sum_of_squares_serial(count * (part + 1) / kSquareParts - begin, x + begin);
    }
  });
  return std::accumulate(sums, sums + kSquareParts, 0.0);
}

}  // namespace

template <class T>
void gradient_norm(Cpu, const StepTensors& all, double share, double max_norm, double* norm, double* factor) {
  double sum = 0;
  for (Index i = 0; i < all.tensor_count; ++i)
    sum += sum_of_squares(all.tensors[i].count, static_cast<const T*>(all.tensors[i].gradient));
  *norm = share * std::sqrt(sum);
  *factor = step_factor(*norm, share, max_norm);
}

template <class T>
void adamw_step(Cpu, const StepTensors& all, const AdamWStep* steps, Index, const double* factor) {
  if (std::isnan(*factor)) return;
  for (Index i = 0; i < all.tensor_count; ++i)
    update_adamw<T>(all.tensors[i], steps[all.tensors[i].setting], *factor);
}

template <class T>
void sgd_step(Cpu, const StepTensors& all, const SgdStep& step, const double* factor) {
  if (std::isnan(*factor)) return;
  for (Index i = 0; i < all.tensor_count; ++i) update_sgd<T>(all.tensors[i], step, *factor);
}

template <class T>
void scale_in_place(Cpu, Index count, double factor, T* x) {
  const T by = static_cast<T>(factor);
  parallel_ranges(count, 1, [=](Index from, Index to) {
#pragma omp simd
    for (Index i = from; i < to; ++i) x[i] *= by;
  });
}

#define INSTANTIATE(T)                                                                          \
  template void gradient_norm<T>(Cpu, const StepTensors&, double, double, double*, double*);    \
  template void adamw_step<T>(Cpu, const StepTensors&, const AdamWStep*, Index, const double*); \
  template void sgd_step<T>(Cpu, const StepTensors&, const SgdStep&, const double*);            \
  template void scale_in_place(Cpu, Index, double, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
