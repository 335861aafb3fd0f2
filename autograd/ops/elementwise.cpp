#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/broadcast.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/tensor_math.h>
#include <tapeformer/autograd/tape/tape.h>

namespace tapeformer {
namespace {

using kernels::Binary;

Tensor binary(const char* op, Binary f, const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shapes(op, a.shape(), b.shape());
  const kernels::Broadcast walk = broadcast_walk(shape, a.shape(), b.shape(), shape);
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  dispatch(op, operands(a, b, y),
           [&](auto on, auto* pa, auto* pb, auto* py) { kernels::binary(on, f, walk, pa, pb, py); });
  return y;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  const Tensor y = binary("add", Binary::add, a, b);
  return record("add", {a, b}, {}, y, [](const Tensor& dy, const Gradients& into) {
    into[0] += dy;
    into[1] += dy;
  });
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  const Tensor y = binary("subtract", Binary::subtract, a, b);
  return record("subtract", {a, b}, {}, y, [](const Tensor& dy, const Gradients& into) {
    into[0] += dy;
    if (into[1]) into[1] += -dy;
  });
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  const Tensor y = binary("multiply", Binary::multiply, a, b);
  return record("multiply", {a, b}, {a, b}, y, [a, b](const Tensor& dy, const Gradients& into) {
    if (into[0]) into[0] += dy * b;
    if (into[1]) into[1] += dy * a;
  });
}

Tensor divide(const Tensor& a, const Tensor& b) {
  const Tensor y = binary("divide", Binary::divide, a, b);
  return record("divide", {a, b}, {b, y}, y, [b, y](const Tensor& dy, const Gradients& into) {
    if (into[0]) into[0] += dy / b;
    if (into[1]) into[1] += -(dy * y / b);
  });
}

Tensor affine(const Tensor& x, double factor, double offset) {
  Tensor y = Tensor::empty_like(x);
  dispatch("affine", operands(x, y),
           [&](auto on, auto* px, auto* py) { kernels::affine(on, x.elements(), factor, offset, px, py); });
  return record("affine", {x}, {}, y,
                [factor](const Tensor& dy, const Gradients& into) { into[0] += factor * dy; });
}

Tensor cast(const Tensor& x, DType type) {
  if (x.dtype() == type) return x;
  return record("cast", {x}, {}, x.to(type),
                [from = x.dtype()](const Tensor& dy, const Gradients& into) { into[0] += cast(dy, from); });
}

Tensor pow(const Tensor& x, double exponent) {
  Tensor y = Tensor::empty_like(x);
  dispatch("pow", operands(x, y),
           [&](auto on, auto* px, auto* py) { kernels::power(on, x.elements(), exponent, px, py); });
  return record("pow", {x}, {x}, y, [x, exponent](const Tensor& dy, const Gradients& into) {
    // 0 * x^-1 would be a NaN at 0.
    into[0] += exponent == 0 ? affine(dy, 0, 0) : exponent * (dy * pow(x, exponent - 1));
  });
}

Tensor clamp(const Tensor& x, double low, double high) {
  if (!(low <= high)) throw Error(format("[clamp] low must be at most high; got low={}, high={}", low, high));
  const Tensor y = Tensor::empty_like(x);
  dispatch("clamp", operands(x, y),
           [&](auto on, auto* px, auto* py) { kernels::clamp(on, x.elements(), low, high, px, py); });
  return record("clamp", {x}, {x, y}, y, [x, y](const Tensor& dy, const Gradients& into) {
    into[0] += where(equal(x, y), dy, Tensor::scalar_like(dy, 0));
  });
}

Tensor unary(Unary f, const Tensor& x) {
  const char* op = name_of(f);
  Tensor y = Tensor::empty_like(x);
  dispatch(op, operands(x, y),
           [&](auto on, auto* px, auto* py) { kernels::unary_forward(on, f, x.elements(), px, py); });
  const Tensor saved = kernels::saves_output(f) ? y : x;
  return record(op, {x}, {saved}, y, [f, op, saved](const Tensor& dy, const Gradients& into) {
    if (into.recorded()) {
      return kernels::with_function(f, [&](auto function) { into[0] += function.gradient(saved, dy); });
    }
    dispatch(op, operands(saved, dy, into[0]), [&](auto on, auto* s, auto* from, auto to) {
      kernels::unary_backward(on, f, dy.elements(), s, from, to);
    });
  });
}

Tensor softcap(const Tensor& x, double cap) { return cap * tanh(x * (1 / cap)); }

const char* name_of(Unary f) {
  const char* name = "";
  kernels::with_function(f, [&](auto function) { name = function.name; });
  return name;
}

bool is_activation(Unary f) {
  bool is = false;
  kernels::with_function(f, [&](auto function) { is = function.is_activation; });
  return is;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Shape values = broadcast_shapes("where", a.shape(), b.shape());
  const Shape shape = broadcast_shapes("where", condition.shape(), values);
  const kernels::Broadcast walk = broadcast_walk(shape, a.shape(), b.shape(), condition.shape());
  require_same_device("where", "condition", condition, a);
  const bool* pick = condition.address<bool>();
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  dispatch("where", operands(a, b, y),
           [&](auto on, auto* pa, auto* pb, auto* py) { kernels::where(on, walk, pick, pa, pb, py); });
  return record("where", {a, b}, {condition}, y, [condition](const Tensor& dy, const Gradients& into) {
    const Tensor zero = Tensor::scalar_like(dy, 0);
    if (into[0]) into[0] += where(condition, dy, zero);
    if (into[1]) into[1] += where(condition, zero, dy);
  });
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  return where(mask, Tensor::scalar_like(x, value), x);
}

Tensor equal(const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shapes("equal", a.shape(), b.shape());
  const kernels::Broadcast walk = broadcast_walk(shape, a.shape(), b.shape(), shape);
  Tensor y = Tensor::empty(shape, DType::boolean, a.device());
  bool* to = y.address<bool>();
  dispatch("equal", operands(a, b),
           [&](auto on, auto* pa, auto* pb) { kernels::equal(on, walk, pa, pb, to); });
  return y;
}

Tensor logical_and(const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shapes("logical_and", a.shape(), b.shape());
  Tensor y = Tensor::empty(shape, DType::boolean, a.device());
  require_same_device("logical_and", "b", b, a);
  const kernels::Broadcast walk = broadcast_walk(shape, a.shape(), b.shape(), shape);
  const bool *pa = a.address<bool>(), *pb = b.address<bool>();
  bool* py = y.address<bool>();
  dispatch_on("logical_and", a.device(), [&](auto on) { kernels::logical_and(on, walk, pa, pb, py); });
  return y;
}

}  // namespace tapeformer
