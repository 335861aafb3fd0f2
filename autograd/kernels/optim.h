#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cmath>

namespace tapeformer::kernels {

/// What one AdamW step does to one parameter. The bias corrections are 1 - beta^step.
struct AdamWStep {
  double learning_rate, gradient_scale, beta1, beta2, epsilon, weight_decay;
  double bias_correction1, bias_correction2;
};

/// Its numbers as the kernels multiply by them.
template <class T>
struct AdamWFactors {
  explicit AdamWFactors(const AdamWStep& step)
      : scale(static_cast<T>(step.gradient_scale)),
        keep(static_cast<T>(1 - step.learning_rate * step.weight_decay)),
        weight1(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        weight2(static_cast<T>(1 - step.beta2)),
        root_correction2(static_cast<T>(std::sqrt(step.bias_correction2))),
        epsilon(static_cast<T>(step.epsilon)),
        step_size(static_cast<T>(step.learning_rate / step.bias_correction1)) {}

  T scale, keep, weight1, beta2, weight2, root_correction2, epsilon, step_size;
};

/// value, m, v and, unless it is nullptr, the value's copy in bf16 in one pass. T is f32 or f64 here and
/// below.
/// Math:    g = gradient_scale gradient;  m = m + (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
///          x = x (1 - lr decay) - (lr / c1) m / (sqrt(v) / sqrt(c2) + epsilon)
template <class T>
void adamw_step(Cpu, Index count, const AdamWStep& step, const T* gradient, T* first_moment, T* second_moment,
                T* value, BFloat16* shadow);
template <class T>
void adamw_step(Cuda, Index count, const AdamWStep& step, const T* gradient, T* first_moment,
                T* second_moment, T* value, BFloat16* shadow);

struct SgdStep {
  double learning_rate, gradient_scale, momentum, weight_decay;
};

/// velocity = momentum velocity + (g + decay x);  x -= lr velocity, where g = gradient_scale gradient.
/// With no velocity (nullptr) it is g + decay x. The shadow as above.
template <class T>
void sgd_step(Cpu, Index count, const SgdStep& step, const T* gradient, T* velocity, T* value,
              BFloat16* shadow);
template <class T>
void sgd_step(Cuda, Index count, const SgdStep& step, const T* gradient, T* velocity, T* value,
              BFloat16* shadow);

constexpr Index kSquareParts = 64;
/// sums [kSquareParts], in double, of as many equal parts of x [count], whatever the number of threads.
template <class T>
void sum_of_squares(Cpu, Index count, const T* x, double* sums);
template <class T>
void sum_of_squares(Cuda, Index count, const T* x, double* sums);
/// x *= factor.
template <class T>
void scale_in_place(Cpu, Index count, double factor, T* x);
template <class T>
void scale_in_place(Cuda, Index count, double factor, T* x);

}  // namespace tapeformer::kernels
