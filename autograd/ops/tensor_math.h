#pragma once

#include <tapeformer/autograd/kernels/unary_functions.h>
#include <tapeformer/autograd/ops/elementwise.h>

#include <cmath>

namespace tapeformer::kernels {

// Gradients by operations, for passes that are themselves recorded.
template <>
struct Math<Tensor> {
  static double constant(double c) { return c; }
  static double product(double a, double b) { return a * b; }
  static Tensor exp(const Tensor& x) { return tapeformer::exp(x); }
  static Tensor log(const Tensor& x) { return tapeformer::log(x); }
  static Tensor sqrt(const Tensor& x) { return tapeformer::sqrt(x); }
  static Tensor tanh(const Tensor& x) { return tapeformer::tanh(x); }
  static Tensor erf(const Tensor& x) { return tapeformer::erf(x); }
  static Tensor sigmoid(const Tensor& x) { return tapeformer::sigmoid(x); }
  static Tensor relu(const Tensor& x) { return tapeformer::relu(x); }
  static Tensor softplus(const Tensor& x) { return tapeformer::softplus(x); }
  static Tensor reciprocal(const Tensor& x) { return pow(x, -1); }
  static Tensor one_minus_square(const Tensor& x) { return 1.0 - x * x; }
  template <class A, class C>
  static Tensor fma(const A& a, const Tensor& b, const C& c) {
    return a * b + c;
  }
  static Tensor equal(const Tensor& x, double c) { return tapeformer::equal(x, Tensor::scalar_like(x, c)); }
  static Tensor select(const Tensor& condition, double a, const Tensor& b) {
    return masked_fill(b, condition, a);
  }
  static WithDerivative<Tensor> normal(const Tensor& x) {
    return {affine(erf(x * M_SQRT1_2), 0.5, 0.5), (0.5 * M_2_SQRTPI * M_SQRT1_2) * exp(-0.5 * (x * x))};
  }
};

}  // namespace tapeformer::kernels
