#pragma once

#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// What one AdamW step does to one parameter. The bias corrections are 1 - beta^step.
struct AdamWStep {
  double learning_rate, gradient_scale, beta1, beta2, epsilon, weight_decay;
  double bias_correction1, bias_correction2;
};

/// value, m and v in one pass.
/// Math:    g = gradient_scale gradient;  m = m + (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
///          x = x (1 - lr decay) - (lr / c1) m / (sqrt(v) / sqrt(c2) + epsilon)
template <class T>
void adamw_step(Cpu, Index count, const AdamWStep& step, const T* gradient, T* first_moment, T* second_moment,
                T* value);
template <class T>
void adamw_step(Cuda, Index count, const AdamWStep& step, const T* gradient, T* first_moment, T* second_moment,
                T* value);

struct SgdStep {
  double learning_rate, gradient_scale, momentum, weight_decay;
};

/// velocity = momentum velocity + (g + decay x);  x -= lr velocity, where g = gradient_scale gradient.
/// With no velocity (nullptr) it is g + decay x.
template <class T>
void sgd_step(Cpu, Index count, const SgdStep& step, const T* gradient, T* velocity, T* value);
template <class T>
void sgd_step(Cuda, Index count, const SgdStep& step, const T* gradient, T* velocity, T* value);

/// In double, in an order that does not depend on the number of threads.
template <class T>
double sum_of_squares(Cpu, Index count, const T* x);
template <class T>
double sum_of_squares(Cuda, Index count, const T* x);
/// x *= factor.
template <class T>
void scale_in_place(Cpu, Index count, double factor, T* x);
template <class T>
void scale_in_place(Cuda, Index count, double factor, T* x);

}  // namespace tapeformer::kernels
