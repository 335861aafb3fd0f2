#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/optim.h>

#include <xsimd/xsimd.hpp>

#include <cmath>
#include <type_traits>

namespace tapeformer::kernels {
namespace {

/// m, v and x of AdamW after a step, on batches or on single values.
template <class T>
struct AdamWUpdate {
  explicit AdamWUpdate(const AdamWStep& step)
      : scale(static_cast<T>(step.gradient_scale)),
        keep(static_cast<T>(1 - step.learning_rate * step.weight_decay)),
        weight1(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        weight2(static_cast<T>(1 - step.beta2)),
        root_correction2(static_cast<T>(std::sqrt(step.bias_correction2))),
        epsilon(static_cast<T>(step.epsilon)),
        step_size(static_cast<T>(step.learning_rate / step.bias_correction1)) {}

  template <class V>
  void operator()(const V& gradient, V& m, V& v, V& x) const {
    using std::sqrt;
    using xsimd::sqrt;
    const V g = gradient * V(scale);
    m = m + V(weight1) * (g - m);
    v = V(beta2) * v + V(weight2) * g * g;
    x = x * V(keep) - V(step_size) * m / (sqrt(v) / V(root_correction2) + V(epsilon));
  }

  T scale, keep, weight1, beta2, weight2, root_correction2, epsilon, step_size;
};

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
                T* value) {
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
  });
  for (Index i = batches * kLanes; i < count; ++i)
    update(gradient[i], first_moment[i], second_moment[i], value[i]);
}

template <class T>
void sgd_step(Cpu, Index count, const SgdStep& step, const T* gradient, T* velocity, T* value) {
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
  });
}

template <class T>
double sum_of_squares(Cpu, Index count, const T* x) {
  constexpr Index kSegments = 64;  // summed apart whatever the number of threads, so that this does not show
  double sums[kSegments];
  parallel_ranges(kSegments, count / kSegments, [&](Index from, Index to) {
    for (Index segment = from; segment < to; ++segment) {
      const Index begin = count * segment / kSegments;
      sums[segment] = sum_of_squares_serial(count * (segment + 1) / kSegments - begin, x + begin);
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

template <class T>
void scale_in_place(Cpu, Index count, double factor, T* x) {
  const T by = static_cast<T>(factor);
  parallel_ranges(count, 1, [=](Index from, Index to) {
#pragma omp simd
    for (Index i = from; i < to; ++i) x[i] *= by;
  });
}

template void adamw_step(Cpu, Index, const AdamWStep&, const float*, float*, float*, float*);
template void adamw_step(Cpu, Index, const AdamWStep&, const double*, double*, double*, double*);
template void sgd_step(Cpu, Index, const SgdStep&, const float*, float*, float*);
template void sgd_step(Cpu, Index, const SgdStep&, const double*, double*, double*);
template double sum_of_squares(Cpu, Index, const float*);
template double sum_of_squares(Cpu, Index, const double*);
template void scale_in_place(Cpu, Index, double, float*);
template void scale_in_place(Cpu, Index, double, double*);

}  // namespace tapeformer::kernels
