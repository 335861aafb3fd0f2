#pragma once

#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/elementwise.h>

namespace tapeformer::kernels {

template <class T>
struct WithDerivative {
  T value, derivative;
};

/// f(x) and f'(x) for the functions that save x; who uses one of them alone pays for that alone. Where a
/// product is fused with a sum is written out, so that every kernel computes the same bits.
template <Unary f, class T>
__device__ WithDerivative<T> value_and_derivative(T x) {
  constexpr T kInverseSqrt2 = T(0.70710678118654752440), kInverseSqrt2Pi = T(0.39894228040143267794);
  constexpr T kTwoOverSqrtPi = T(1.12837916709551257390), kSqrt2OverPi = T(0.79788456080286535588);
  constexpr T kGeluCubic = T(0.044715), kHalf = T(0.5), kOne = T(1);
  static_assert(!saves_output(f), "saves x");
  if constexpr (f == Unary::log) {
    return {log(x), kOne / x};
  } else if constexpr (f == Unary::erf) {
    return {erf(x), kTwoOverSqrtPi * exp(-x * x)};
  } else if constexpr (f == Unary::gelu) {
    const T below = kHalf * erfc(-x * kInverseSqrt2);  // 1 + erf would lose the lower tail
    return {x * below, fma(x, kInverseSqrt2Pi * exp(-kHalf * x * x), below)};
  } else if constexpr (f == Unary::gelu_tanh) {
    const T square = x * x, t = tanh(kSqrt2OverPi * x * fma(kGeluCubic, square, kOne));
    const T slope = kSqrt2OverPi * fma(T(3) * kGeluCubic, square, kOne) * fma(-t, t, kOne);
    return {kHalf * x * (kOne + t), kHalf * fma(x, slope, kOne + t)};
  } else {
    const T s = kOne / (kOne + exp(-x));
    return {x * s, s * fma(x, kOne - s, kOne)};
  }
}

template <Unary f, class T>
__device__ T unary_value(T x) {
  if constexpr (f == Unary::exp) {
    return exp(x);
  } else if constexpr (f == Unary::sqrt) {
    return sqrt(x);
  } else if constexpr (f == Unary::tanh) {
    return tanh(x);
  } else if constexpr (f == Unary::sigmoid) {
    return T(1) / (T(1) + exp(-x));
  } else if constexpr (f == Unary::relu) {  // a NaN stays one
    return x < T(0) ? T(0) : x;
  } else {
    return value_and_derivative<f>(x).value;
  }
}

/// dy f'(x), from what `f` saves.
template <Unary f, class T>
__device__ T unary_gradient(T saved, T dy) {
  if constexpr (f == Unary::exp) {
    return dy * saved;
  } else if constexpr (f == Unary::sqrt) {
    return T(0.5) * dy / saved;
  } else if constexpr (f == Unary::tanh) {
    return dy * fma(-saved, saved, T(1));
  } else if constexpr (f == Unary::sigmoid) {
    return dy * saved * (T(1) - saved);
  } else if constexpr (f == Unary::relu) {
    return saved <= T(0) ? T(0) : dy;  // at a NaN dy, as PyTorch has it
  } else {
    return dy * value_and_derivative<f>(saved).derivative;
  }
}

template <Unary f>
using UnaryConstant = std::integral_constant<Unary, f>;

/// Calls `use` with a UnaryConstant: each function has kernels of its own.
template <class Use>
void with_unary(Unary f, Use&& use) {
  switch (f) {
    case Unary::exp: return use(UnaryConstant<Unary::exp>{});
    case Unary::log: return use(UnaryConstant<Unary::log>{});
    case Unary::sqrt: return use(UnaryConstant<Unary::sqrt>{});
    case Unary::tanh: return use(UnaryConstant<Unary::tanh>{});
    case Unary::erf: return use(UnaryConstant<Unary::erf>{});
    case Unary::sigmoid: return use(UnaryConstant<Unary::sigmoid>{});
    case Unary::relu: return use(UnaryConstant<Unary::relu>{});
    case Unary::gelu: return use(UnaryConstant<Unary::gelu>{});
    case Unary::gelu_tanh: return use(UnaryConstant<Unary::gelu_tanh>{});
    case Unary::silu: return use(UnaryConstant<Unary::silu>{});
  }
}

}  // namespace tapeformer::kernels
