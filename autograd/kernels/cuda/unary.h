#pragma once

#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/unary_functions.h>

namespace tapeformer::kernels {

/// CUDA's functions. Products fused with sums are written out, so that every kernel computes the same bits.
template <class T>
struct NumberMath {
  __device__ static T constant(double c) { return static_cast<T>(c); }
  __device__ static T product(double a, double b) { return constant(a) * constant(b); }
  __device__ static T exp(T x) { return ::exp(x); }
  __device__ static T log(T x) { return ::log(x); }
  __device__ static T sqrt(T x) { return ::sqrt(x); }
  __device__ static T tanh(T x) { return ::tanh(x); }
  __device__ static T erf(T x) { return ::erf(x); }
  __device__ static T fma(T a, T b, T c) { return ::fma(a, b, c); }
  __device__ static T reciprocal(T x) { return constant(1) / x; }
  __device__ static T one_minus_square(T x) { return ::fma(-x, x, constant(1)); }
  __device__ static T sigmoid(T x) { return reciprocal(constant(1) + exp(-x)); }
  __device__ static T relu(T x) { return Function<Unary::relu>::value(x); }
  __device__ static T softplus(T x) { return relu(x) + ::log1p(::exp(-::fabs(x))); }
  __device__ static bool equal(T a, T b) { return a == b; }
  __device__ static T select(bool condition, T a, T b) { return condition ? a : b; }
  /// The standard normal distribution function and its density; 1 + erf would lose the lower tail.
  __device__ static WithDerivative<T> normal(T x) {
    const T below = constant(0.5) * ::erfc(-x * constant(0.70710678118654752440));
    return {below, constant(0.39894228040143267794) * ::exp(constant(-0.5) * x * x)};
  }
};
template <>
struct Math<float> : NumberMath<float> {};
template <>
struct Math<double> : NumberMath<double> {};

}  // namespace tapeformer::kernels
