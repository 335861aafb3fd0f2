#pragma once

#include <tapeformer/autograd/kernels/elementwise.h>
#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

using kernels::kUnaries;
using kernels::Unary;

/// Elementwise arithmetic.
/// Math:    y = a + b, a - b, a * b, a / b
/// Shapes:  a, b broadcast against each other, aligned at the last axis -> y
/// Throws:  ShapeError if they do not broadcast, DTypeError if the types differ
Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor divide(const Tensor& a, const Tensor& b);

/// Math:    y = factor * x + offset
Tensor affine(const Tensor& x, double factor, double offset);

/// The operations above, and affine(), as operators.
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator*(const Tensor& x, double factor) { return affine(x, factor, 0); }
inline Tensor operator*(double factor, const Tensor& x) { return affine(x, factor, 0); }
inline Tensor operator+(const Tensor& x, double offset) { return affine(x, 1, offset); }
inline Tensor operator+(double offset, const Tensor& x) { return affine(x, 1, offset); }
inline Tensor operator-(const Tensor& x, double offset) { return affine(x, 1, -offset); }
inline Tensor operator-(double offset, const Tensor& x) { return affine(x, -1, offset); }
inline Tensor operator-(const Tensor& x) { return affine(x, -1, 0); }

/// Math:    y = x^exponent
/// Grad:    dx = dy * exponent * x^(exponent - 1)
Tensor pow(const Tensor& x, double exponent);

/// Math:    y = min(max(x, low), high); a NaN stays one
/// Grad:    dx = dy where y = x, else exactly zero
/// Saves:   x, y
/// Throws:  Error unless low <= high
Tensor clamp(const Tensor& x, double low, double high);

/// Elementwise functions.
/// Math:    relu = max(x, 0); relu_squared = relu(x)^2; gelu = x Phi(x);
///          gelu_tanh = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); silu = x sigmoid(x);
///          softplus = log(1 + exp(x))
/// Grad:    relu'(0) = 0
/// Saves:   y for exp, sqrt, tanh, sigmoid and relu, x for the others
/// Source:  GELU: Hendrycks and Gimpel 2016, arXiv:1606.08415; SiLU: ibid. and Ramachandran et al. 2017;
///          squared ReLU: So et al. 2021, arXiv:2109.08668
Tensor unary(Unary f, const Tensor& x);
inline Tensor exp(const Tensor& x) { return unary(Unary::exp, x); }
inline Tensor log(const Tensor& x) { return unary(Unary::log, x); }
inline Tensor sqrt(const Tensor& x) { return unary(Unary::sqrt, x); }
inline Tensor tanh(const Tensor& x) { return unary(Unary::tanh, x); }
inline Tensor erf(const Tensor& x) { return unary(Unary::erf, x); }
inline Tensor sigmoid(const Tensor& x) { return unary(Unary::sigmoid, x); }
inline Tensor relu(const Tensor& x) { return unary(Unary::relu, x); }
inline Tensor relu_squared(const Tensor& x) { return unary(Unary::relu_squared, x); }
inline Tensor gelu(const Tensor& x) { return unary(Unary::gelu, x); }
inline Tensor gelu_tanh(const Tensor& x) { return unary(Unary::gelu_tanh, x); }
inline Tensor silu(const Tensor& x) { return unary(Unary::silu, x); }
inline Tensor softplus(const Tensor& x) { return unary(Unary::softplus, x); }
const char* name_of(Unary f);
/// cap tanh(x / cap), which stays within +-cap and close to x around 0.
/// Source:  Gemma Team 2024, arXiv:2408.00118, section 2
Tensor softcap(const Tensor& x, double cap);
/// True for functions that feed-forward layers may use between their products.
bool is_activation(Unary f);

/// Math:    y = condition ? a : b
/// Shapes:  condition bool, a and b floating, the three broadcast -> y
/// Grad:    each element's gradient goes to the operand it came from; the other gets exactly zero
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// `value` where `mask` is true, else x; no gradient flows there.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

/// Elementwise operations with bool results, which are not recorded.
Tensor equal(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, const Tensor& b);

}  // namespace tapeformer
