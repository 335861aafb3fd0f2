#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/ops/broadcast.h>
#include <tapeformer/autograd/ops/elementwise.h>

#include <cmath>

namespace tapeformer {
namespace {

using kernels::Binary;

Tensor binary(const char* op, Binary f, const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shapes(op, a.shape(), b.shape());
  const kernels::Broadcast walk = broadcast_walk(shape, a.shape(), b.shape(), shape);
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  dispatch(
      op, [&](auto on, auto* pa, auto* pb, auto* py) { kernels::binary(on, f, walk, pa, pb, py); }, a, b, y);
  return y;
}

/// The gradient of `unary` in plain operations, for passes that are themselves recorded.
Tensor unary_gradient(Unary f, const Tensor& saved, const Tensor& dy) {
  const Tensor& s = saved;
  switch (f) {
    case Unary::exp: return dy * s;
    case Unary::log: return dy / s;
    case Unary::sqrt: return 0.5 * (dy / s);
    case Unary::tanh: return dy * (1.0 - s * s);
    case Unary::erf: return dy * exp(-(s * s)) * (2 / std::sqrt(M_PI));
    case Unary::sigmoid: return dy * (s * (1.0 - s));
    case Unary::relu: return masked_fill(dy, equal(s, Tensor::scalar_like(s, 0)), 0);
    case Unary::gelu: {
      const Tensor cdf = affine(erf(s * M_SQRT1_2), 0.5, 0.5);
      return dy * (cdf + s * exp(-0.5 * (s * s)) * (0.5 * M_2_SQRTPI * M_SQRT1_2));
    }
    case Unary::gelu_tanh: {
      const double c = M_2_SQRTPI * M_SQRT1_2;  // sqrt(2 / pi)
      const Tensor t = tanh(c * (s + 0.044715 * (s * s * s)));
      return dy * (affine(t, 0.5, 0.5) + 0.5 * c * (s * (1.0 - t * t) * affine(s * s, 3 * 0.044715, 1)));
    }
    case Unary::silu: {
      const Tensor p = sigmoid(s);
      return dy * p * (s * (1.0 - p) + 1.0);
    }
  }
  return {};
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
  const Index count = x.elements();
  dispatch(
      "affine",
      [&](auto on, auto* from, auto* to) {
        using T = kernels::Wide<std::remove_pointer_t<decltype(to)>>;
        kernels::affine(on, count, static_cast<T>(factor), static_cast<T>(offset), from, to);
      },
      x, y);
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
  const Index count = x.elements();
  dispatch(
      "pow",
      [&](auto on, auto* from, auto* to) {
        using T = kernels::Wide<std::remove_pointer_t<decltype(to)>>;
        kernels::power(on, count, static_cast<T>(exponent), from, to);
      },
      x, y);
  return record("pow", {x}, {x}, y, [x, exponent](const Tensor& dy, const Gradients& into) {
    // 0 * x^-1 would be a NaN at 0.
    into[0] += exponent == 0 ? affine(dy, 0, 0) : exponent * (dy * pow(x, exponent - 1));
  });
}

Tensor unary(Unary f, const Tensor& x) {
  const char* op = name_of(f);
  Tensor y = Tensor::empty_like(x);
  const Index count = x.elements();
  dispatch(
      op, [&](auto on, auto* from, auto* to) { kernels::unary_forward(on, f, count, from, to); }, x, y);
  const Tensor saved = kernels::saves_output(f) ? y : x;
  return record(op, {x}, {saved}, y, [f, op, saved, count](const Tensor& dy, const Gradients& into) {
    if (into.recorded()) {
      into[0] += unary_gradient(f, saved, dy);
      return;
    }
    dispatch(
        op,
        [&](auto on, auto* s, auto* from, auto to) { kernels::unary_backward(on, f, count, s, from, to); },
        saved, dy, into[0]);
  });
}

Tensor exp(const Tensor& x) { return unary(Unary::exp, x); }
Tensor log(const Tensor& x) { return unary(Unary::log, x); }
Tensor sqrt(const Tensor& x) { return unary(Unary::sqrt, x); }
Tensor tanh(const Tensor& x) { return unary(Unary::tanh, x); }
Tensor erf(const Tensor& x) { return unary(Unary::erf, x); }
Tensor sigmoid(const Tensor& x) { return unary(Unary::sigmoid, x); }
Tensor relu(const Tensor& x) { return unary(Unary::relu, x); }
Tensor gelu(const Tensor& x) { return unary(Unary::gelu, x); }
Tensor gelu_tanh(const Tensor& x) { return unary(Unary::gelu_tanh, x); }
Tensor silu(const Tensor& x) { return unary(Unary::silu, x); }

const char* name_of(Unary f) {
  constexpr const char* kNames[] = {"exp",     "log",  "sqrt", "tanh",      "erf",
                                    "sigmoid", "relu", "gelu", "gelu_tanh", "silu"};
  return kNames[static_cast<int>(f)];
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Shape values = broadcast_shapes("where", a.shape(), b.shape());
  const Shape shape = broadcast_shapes("where", condition.shape(), values);
  const kernels::Broadcast walk = broadcast_walk(shape, a.shape(), b.shape(), condition.shape());
  require_same_device("where", "condition", condition, a);
  const bool* pick = condition.address<bool>();
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  dispatch(
      "where", [&](auto on, auto* pa, auto* pb, auto* py) { kernels::where(on, walk, pick, pa, pb, py); }, a,
      b, y);
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
  dispatch(
      "equal", [&](auto on, auto* pa, auto* pb) { kernels::equal(on, walk, pa, pb, to); }, a, b);
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
