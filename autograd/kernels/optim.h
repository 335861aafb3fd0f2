#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cmath>
#include <cstdint>

namespace tapeformer::kernels {

/// A parameter for the kernels of a step: `count` values at each address, all of type f32 or all f64 (T
/// below), the same for all parameters. Moments that an optimizer does not have, and a missing shadow, are
/// nullptr.
struct StepTensor {
  const void* gradient = nullptr;
  void *value = nullptr, *state1 = nullptr, *state2 = nullptr;
  BFloat16* shadow = nullptr;  ///< the value in bf16, written in the same pass
  Index count = 0;
  Index setting = 0;  ///< the index of the parameter's settings among those of the step
};

/// A block's work on a GPU: a parameter's elements from part * kStepChunk on.
struct StepChunk {
  std::int32_t tensor, part;
};
constexpr Index kStepChunk = 4096;

/// All parameters of a step, in memory of the kernels' device; the CPU's kernels do not use the chunks.
struct StepTensors {
  const StepTensor* tensors = nullptr;
  const StepChunk* chunks = nullptr;
  Index tensor_count = 0, chunk_count = 0;
  /// Totals over all tensors and what they point to; counted while a Profile measures, 0 otherwise.
  Index elements = 0, bytes = 0;
};

/// The factor of the gradients: `share`, or less if `norm`, which is `share` times their norm, exceeds
/// `max_norm` (0: no limit); NaN if `norm` is not finite, and then a step changes nothing.
/// Math:    min(1, max_norm / (norm + 1e-6)) share
TAPEFORMER_HOST_DEVICE inline double step_factor(double norm, double share, double max_norm) {
  if (!(norm - norm == 0)) return norm - norm;  // NaN
  const double limit = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
  return limit < 1 ? share * limit : share;
}

/// norm [1] = share times the Euclidean norm of all gradients together, summed in double in an order that
/// depends only on the sizes; factor [1] = step_factor().
TAPEFORMER_KERNEL(gradient_norm, const StepTensors& all, double share, double max_norm, double* norm,
                  double* factor);

/// One parameter's settings in a step of AdamW. The bias corrections are 1 - beta^step.
struct AdamWStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double bias_correction1, bias_correction2;
};
/// One parameter's settings in a step of Lion.
struct LionStep {
  double learning_rate, beta1, beta2, weight_decay;
};
/// One parameter's settings in a step of SGD.
struct SgdStep {
  double learning_rate, momentum, weight_decay;
};

/// Expands to use(STEP, further) for the settings of each optimizer that has a rule.
#define TAPEFORMER_STEPS(use, further) use(AdamWStep, further) use(LionStep, further) use(SgdStep, further)

/// The rule of an optimizer, with its settings as the factors that the kernels use:
/// update(gradient, state1, state2, value), for numbers or for vectors.
template <class T, class Step>
struct StepRule;

/// Math:    m = m + (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
///          x = x (1 - lr decay) - (lr / c1) m / (sqrt(v) / sqrt(c2) + epsilon)
template <class T>
struct StepRule<T, AdamWStep> {
  StepRule() = default;
  explicit StepRule(const AdamWStep& step)
      : from_gradient(step.beta1 < 0.5),
        keep(static_cast<T>(1 - step.learning_rate * step.weight_decay)),
        weight1(static_cast<T>(from_gradient ? step.beta1 : 1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        weight2(static_cast<T>(1 - step.beta2)),
        root_correction2(static_cast<T>(std::sqrt(step.bias_correction2))),
        epsilon(static_cast<T>(step.epsilon)),
        step_size(static_cast<T>(step.learning_rate / step.bias_correction1)) {}

  /// m + (1 - beta1) (g - m), computed from the nearer end: with beta1 = 0 it is exactly g, even for a large
  /// m.
  template <class V>
  TAPEFORMER_HOST_DEVICE V first_moment(const V& m, const V& g) const {
    return from_gradient ? g + V(weight1) * (m - g) : m + V(weight1) * (g - m);
  }

  template <class V>
  TAPEFORMER_HOST_DEVICE void update(const V& g, V& m, V& v, V& x) const {
    using std::sqrt;
    m = first_moment(m, g);
    v = V(beta2) * v + V(weight2) * g * g;
    x = x * V(keep) - V(step_size) * m / (sqrt(v) / V(root_correction2) + V(epsilon));
  }

  bool from_gradient;
  T keep, weight1, beta2, weight2, root_correction2, epsilon, step_size;
};

/// -1, 0 or 1.
TAPEFORMER_HOST_DEVICE inline float sign(float x) { return static_cast<float>((x > 0) - (x < 0)); }
TAPEFORMER_HOST_DEVICE inline double sign(double x) { return static_cast<double>((x > 0) - (x < 0)); }

/// Math:    x = x (1 - lr decay) - lr sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g
template <class T>
struct StepRule<T, LionStep> {
  StepRule() = default;
  explicit StepRule(const LionStep& step)
      : keep(static_cast<T>(1 - step.learning_rate * step.weight_decay)),
        rate(static_cast<T>(step.learning_rate)),
        beta1(static_cast<T>(step.beta1)),
        weight1(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        weight2(static_cast<T>(1 - step.beta2)) {}

  template <class V>
  TAPEFORMER_HOST_DEVICE void update(const V& g, V& m, V&, V& x) const {
    using kernels::sign;
    const V direction = sign(V(V(beta1) * m + V(weight1) * g));
    x = x * V(keep) - V(rate) * direction;
    m = V(beta2) * m + V(weight2) * g;
  }

  T keep, rate, beta1, weight1, beta2, weight2;
};

/// Math:    velocity = momentum velocity + (g + decay x);  x -= lr velocity
template <class T>
struct StepRule<T, SgdStep> {
  StepRule() = default;
  explicit StepRule(const SgdStep& step)
      : rate(static_cast<T>(step.learning_rate)),
        momentum(static_cast<T>(step.momentum)),
        decay(static_cast<T>(step.weight_decay)) {}

  template <class V>
  TAPEFORMER_HOST_DEVICE void update(const V& g, V& velocity, V&, V& x) const {
    velocity = V(momentum) * velocity + (g + V(decay) * x);
    x = x - V(rate) * velocity;
  }

  T rate, momentum, decay;
};

/// Updates values, states and shadows in one pass, by the rule of their settings `steps` [step_count], which
/// are on the host. Gradients are multiplied by *factor; a state that is nullptr counts as zero. A NaN factor
/// changes nothing.
template <class T, class Step>
void optimizer_step(Cpu, const StepTensors& all, const Step* steps, Index step_count, const double* factor);
template <class T, class Step>
void optimizer_step(Cuda, const StepTensors& all, const Step* steps, Index step_count, const double* factor);

/// state1 += weight (value - state1): a moving average of values. Changes nothing unless *norm is finite.
TAPEFORMER_KERNEL(average_step, const StepTensors& all, double weight, const double* norm);

/// Swaps values and state1; writes shadows too.
TAPEFORMER_KERNEL(exchange_values, const StepTensors& all);

TAPEFORMER_KERNEL(scale_in_place, Index count, double factor, T* x);

}  // namespace tapeformer::kernels
