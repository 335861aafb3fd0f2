#pragma once

#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/unary_functions.h>

#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

namespace tapeformer::kernels {

/// xsimd's functions, corrected where they are wrong.
template <class T, class Arch>
struct Math<xsimd::batch<T, Arch>> {
  using B = xsimd::batch<T, Arch>;
  static B constant(double c) { return B(static_cast<T>(c)); }
  static B product(double a, double b) { return constant(a * b); }
  static B sqrt(const B& x) { return xsimd::sqrt(x); }
  static B tanh(const B& x) { return xsimd::tanh(x); }
  static B fma(const B& a, const B& b, const B& c) { return xsimd::fma(a, b, c); }
  static B reciprocal(const B& x) { return constant(1) / x; }
  static B one_minus_square(const B& x) { return constant(1) - x * x; }
  static B sigmoid(const B& x) { return reciprocal(constant(1) + exp_lanes(-x)); }
  static B relu(const B& x) { return Function<Unary::relu>::value(x); }
  static B softplus(const B& x) { return relu(x) + xsimd::log1p(exp_lanes(-xsimd::abs(x))); }
  static auto equal(const B& a, const B& b) { return a == b; }
  template <class Condition>
  static B select(const Condition& condition, const B& a, const B& b) {
    return xsimd::select(condition, a, b);
  }

  /// exp_lanes() of f32 is infinite from 88.4 on, the function from 88.7 on. (Their reciprocals are 0.)
  static B exp(const B& x) {
    if constexpr (sizeof(T) == sizeof(double)) return exp_lanes(x);
    const auto large = x > constant(88);
    return exp_lanes(select(large, x - constant(1), x)) * select(large, constant(M_E), constant(1));
  }

  /// xsimd's log is wrong below the smallest normal number.
  static B log(const B& x) {
    const auto small = x < B(std::numeric_limits<T>::min());
    return xsimd::log(select(small, x * constant(0x1p54), x)) -
           select(small, constant(54 * M_LN2), constant(0));
  }

  /// xsimd's erf overflows from 1e61 on; from 6 on the function is 1 to the last bit.
  static B erf(const B& x) {
    const B most = constant(6);
    return xsimd::erf(select(x > most, most, select(x < -most, -most, x)));
  }

  /// The standard normal distribution function and its density.
  static WithDerivative<B> normal(const B& x) {
    constexpr double kInverseSqrt2 = 0.70710678118654752440, kInverseSqrt2Pi = 0.39894228040143267794;
    const B one = constant(1), half = constant(0.5), bell = exp_lanes(-half * x * x);
    const B density = constant(kInverseSqrt2Pi) * bell;
    if constexpr (sizeof(T) == sizeof(double)) {
      return {half * (one + erf(x * constant(kInverseSqrt2))), density};
    } else {
      // The probability below -|x| is exp(-x^2/2) t P(t), t = 1 / (1 + 0.2625 |x|). P was fitted to the
      // relative error, at most 4e-8 for |x| up to 13, beyond which f32 has nothing left.
      constexpr float kFactors[] = {0.0311959218F, -0.150994793F, 0.239270002F, -0.138553455F, 0.152716726F,
                                    0.0543143265F, 0.103215709F,  0.104082294F, 0.104753278F};
      const B t = one / fma(B(0.2625F), xsimd::abs(x), one);
      B p(kFactors[0]);
      for (std::size_t i = 1; i < std::size(kFactors); ++i) p = fma(p, t, B(kFactors[i]));
      const B tail = p * t * bell;
      return {select(x < constant(0), tail, one - tail), density};
    }
  }
};

}  // namespace tapeformer::kernels
