#pragma once

#include <tapeformer/autograd/bfloat16.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

/// Element-wise functions of one argument. To add one: an entry of Unary, its Function below, and a line in
/// ops/elementwise.h; the kernels for CPU and GPU, names and gradients follow. If the Function needs
/// arithmetic that Math lacks, add it to all three: kernels/cpu/simd_math.h, kernels/cuda/unary.h and
/// ops/tensor_math.h. Its test needs a formula in tests/autograd/ops/test_elementwise.cpp, and takes values
/// from PyTorch if tests/golden/golden_ops.py makes them.
namespace tapeformer::kernels {

enum class Unary : std::uint8_t {
  exp,
  log,
  sqrt,
  tanh,
  erf,
  sigmoid,
  relu,
  relu_squared,
  gelu,
  gelu_tanh,
  silu,
  softplus,
  count,  // of the functions above
};

/// Arithmetic on V: an xsimd batch (cpu/simd_math.h), a float or double on a GPU (cuda/unary.h), or a
/// Tensor, for second derivatives (ops/tensor_math.h). at() and gradient() are compiled for all three,
/// value() of SavesOutput for the first two alone.
template <class V>
struct Math;

template <class V>
struct WithDerivative {
  V value, derivative;
};

/// A function whose gradient is computed from its output: it defines `value(x)` and `gradient(y, dy)`. This
/// saves keeping x; choose it only if it loses no precision.
struct SavesOutput {
  static constexpr bool saves_output = true, is_activation = false;
};

/// A function whose gradient is computed from its input: it defines `at(x)`.
template <class Self>
struct SavesInput {
  static constexpr bool saves_output = false, is_activation = false;
  template <class V>
  TAPEFORMER_HOST_DEVICE static V value(const V& x) {
    return Self::at(x).value;
  }
  template <class V>
  TAPEFORMER_HOST_DEVICE static V gradient(const V& x, const V& dy) {
    return dy * Self::at(x).derivative;
  }
};

template <Unary f>
struct Function;

template <>
struct Function<Unary::exp> : SavesOutput {
  static constexpr const char* name = "exp";
  template <class V>
  TAPEFORMER_HOST_DEVICE static V value(const V& x) {
    return Math<V>::exp(x);
  }
  template <class V>
  TAPEFORMER_HOST_DEVICE static V gradient(const V& y, const V& dy) {
    return dy * y;
  }
};

template <>
struct Function<Unary::log> : SavesInput<Function<Unary::log>> {
  static constexpr const char* name = "log";
  template <class V>
  TAPEFORMER_HOST_DEVICE static WithDerivative<V> at(const V& x) {
    return {Math<V>::log(x), Math<V>::reciprocal(x)};
  }
};

template <>
struct Function<Unary::sqrt> : SavesOutput {
  static constexpr const char* name = "sqrt";
  template <class V>
  TAPEFORMER_HOST_DEVICE static V value(const V& x) {
    return Math<V>::sqrt(x);
  }
  template <class V>
  TAPEFORMER_HOST_DEVICE static V gradient(const V& y, const V& dy) {
    return Math<V>::constant(0.5) * dy / y;
  }
};

template <>
struct Function<Unary::tanh> : SavesOutput {
  static constexpr const char* name = "tanh";
  template <class V>
  TAPEFORMER_HOST_DEVICE static V value(const V& x) {
    return Math<V>::tanh(x);
  }
  template <class V>
  TAPEFORMER_HOST_DEVICE static V gradient(const V& y, const V& dy) {
    return dy * Math<V>::one_minus_square(y);
  }
};

template <>
struct Function<Unary::erf> : SavesInput<Function<Unary::erf>> {
  static constexpr const char* name = "erf";
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static WithDerivative<V> at(const V& x) {
    constexpr double kTwoOverSqrtPi = 2 * 0.79788456080286535588 * 0.70710678118654752440;
    return {M::erf(x), M::constant(kTwoOverSqrtPi) * M::exp(-x * x)};
  }
};

template <>
struct Function<Unary::sigmoid> : SavesOutput {
  static constexpr const char* name = "sigmoid";
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static V value(const V& x) {
    return M::sigmoid(x);
  }
  template <class V>
  TAPEFORMER_HOST_DEVICE static V gradient(const V& y, const V& dy) {
    return dy * y * (Math<V>::constant(1) - y);
  }
};

/// A NaN stays one; the gradient at a NaN is dy, as in PyTorch.
template <>
struct Function<Unary::relu> : SavesOutput {
  static constexpr const char* name = "relu";
  static constexpr bool is_activation = true;
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static V value(const V& x) {
    return M::select(x < M::constant(0), M::constant(0), x);
  }
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static V gradient(const V& y, const V& dy) {
    return M::select(M::equal(y, M::constant(0)), M::constant(0), dy);
  }
};

/// relu(x)^2.
template <>
struct Function<Unary::relu_squared> : SavesInput<Function<Unary::relu_squared>> {
  static constexpr const char* name = "relu_squared";
  static constexpr bool is_activation = true;
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static WithDerivative<V> at(const V& x) {
    const V positive = M::relu(x);
    return {positive * positive, M::constant(2) * positive};
  }
};

/// x times the standard normal distribution function.
template <>
struct Function<Unary::gelu> : SavesInput<Function<Unary::gelu>> {
  static constexpr const char* name = "gelu";
  static constexpr bool is_activation = true;
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static WithDerivative<V> at(const V& x) {
    const auto normal = M::normal(x);
    return {x * normal.value, M::fma(x, normal.derivative, normal.value)};
  }
};

/// gelu with tanh(sqrt(2 / pi) (x + 0.044715 x^3)) in place of erf(x / sqrt(2)).
template <>
struct Function<Unary::gelu_tanh> : SavesInput<Function<Unary::gelu_tanh>> {
  static constexpr const char* name = "gelu_tanh";
  static constexpr bool is_activation = true;
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static WithDerivative<V> at(const V& x) {
    const auto one = M::constant(1), half = M::constant(0.5), c = M::constant(0.79788456080286535588);
    const V square = x * x, t = M::tanh(c * x * M::fma(M::constant(0.044715), square, one));
    const V slope = c * M::fma(M::product(3, 0.044715), square, one) * M::fma(-t, t, one);
    return {half * x * (one + t), half * M::fma(x, slope, one + t)};
  }
};

template <>
struct Function<Unary::silu> : SavesInput<Function<Unary::silu>> {
  static constexpr const char* name = "silu";
  static constexpr bool is_activation = true;
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static WithDerivative<V> at(const V& x) {
    const auto one = M::constant(1);
    const V s = M::sigmoid(x);
    return {x * s, s * M::fma(x, one - s, one)};
  }
};

/// log(1 + exp(x)) for any x.
template <>
struct Function<Unary::softplus> : SavesInput<Function<Unary::softplus>> {
  static constexpr const char* name = "softplus";
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static WithDerivative<V> at(const V& x) {
    return {M::softplus(x), M::sigmoid(x)};
  }
};

/// Expands to one term for each function, whose number is i.
using EachUnary = std::make_index_sequence<static_cast<std::size_t>(Unary::count)>;

template <std::size_t... i>
constexpr std::array<Unary, sizeof...(i)> list_of_unaries(std::index_sequence<i...>) {
  return {static_cast<Unary>(i)...};
}
constexpr auto kUnaries = list_of_unaries(EachUnary{});

template <class Use, std::size_t... i>
constexpr void with_function(Unary f, const Use& use, std::index_sequence<i...>) {
  (void)((f == static_cast<Unary>(i) && (use(Function<static_cast<Unary>(i)>{}), true)) || ...);
}
/// Calls `use` with f's Function.
template <class Use>
constexpr void with_function(Unary f, const Use& use) {
  with_function(f, use, EachUnary{});
}

/// Whether f's gradient is computed from y, else from x.
constexpr bool saves_output(Unary f) {
  bool saves = false;
  with_function(f, [&](auto function) { saves = decltype(function)::saves_output; });
  return saves;
}

}  // namespace tapeformer::kernels
