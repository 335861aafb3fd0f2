#pragma once

#include <tapeformer/autograd/kernels/unary_functions.h>
#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>
#include <functional>

namespace tapeformer::kernels {

enum class Binary : std::uint8_t { add, subtract, multiply, divide };
/// Calls use(f's operator, f's name).
template <class Use>
void with_operator(Binary f, const Use& use) {
  switch (f) {
    case Binary::add: return use(std::plus<>{}, "add");
    case Binary::subtract: return use(std::minus<>{}, "subtract");
    case Binary::multiply: return use(std::multiplies<>{}, "multiply");
    case Binary::divide: return use(std::divides<>{}, "divide");
  }
}

/// Up to three operands broadcast to `sizes`, with adjacent axes merged if all allow it: strides in elements,
/// 0 if one repeats. Elementwise kernels have at least one axis, and the last one has strides of 0 or 1.
struct Broadcast {
  int axes = 0;
  Index sizes[8] = {};
  Index strides_a[8] = {}, strides_b[8] = {}, strides_c[8] = {};
  TAPEFORMER_HOST_DEVICE Index elements() const {
    Index product = 1;
    for (int axis = 0; axis < axes; ++axis) product *= sizes[axis];
    return product;
  }
  /// The offsets of the operands at the i-th index of the first `leading` axes.
  struct Offsets {
    Index a = 0, b = 0, c = 0;
  };
  Offsets offsets(Index i, int leading) const {
    Offsets at;
    for (int axis = leading - 1; axis >= 0; --axis) {
      const Index k = i % sizes[axis];
      i /= sizes[axis];
      at.a += k * strides_a[axis], at.b += k * strides_b[axis], at.c += k * strides_c[axis];
    }
    return at;
  }
};

/// Two operands of `count` elements each.
inline Broadcast alike(Index count) { return {1, {count}, {1}, {1}, {1}}; }

/// y = f(x).
TAPEFORMER_KERNEL(unary_forward, Unary f, Index count, const T* x, T* y);
/// dx = dy * f'(x); `saved` is y where saves_output(f), else x.
TAPEFORMER_KERNEL(unary_backward, Unary f, Index count, const T* saved, const T* dy, Write<T> dx);

/// y = f(x), and f'(x) in place of x, which costs little more than y alone: for functions that save x.
template <class T>
void unary_forward_with_derivative(Cpu, Unary f, Index count, T* x, T* y);

TAPEFORMER_KERNEL(binary, Binary f, const Broadcast& sizes, const T* a, const T* b, T* y);
/// y = factor * x + offset.
TAPEFORMER_KERNEL(affine, Index count, double factor, double offset, const T* x, T* y);
TAPEFORMER_KERNEL(power, Index count, double exponent, const T* x, T* y);
/// y = min(max(x, low), high); a NaN stays one.
TAPEFORMER_KERNEL(clamp, Index count, double low, double high, const T* x, T* y);
/// y = condition ? a : b, the three of them broadcast (condition has strides_c).
TAPEFORMER_KERNEL(where, const Broadcast& sizes, const bool* condition, const T* a, const T* b, T* y);
TAPEFORMER_KERNEL(equal, const Broadcast& sizes, const T* a, const T* b, bool* y);
TAPEFORMER_PLAIN_KERNEL(logical_and, const Broadcast& sizes, const bool* a, const bool* b, bool* y);
/// sum += x.
TAPEFORMER_KERNEL(add_in_place, Index count, const T* x, T* sum);
/// *first = the position of the first NaN, or unless `nan_only` infinity; -1 if there is none.
TAPEFORMER_KERNEL(first_non_finite, Index count, const T* x, bool nan_only, Index* first);

}  // namespace tapeformer::kernels
