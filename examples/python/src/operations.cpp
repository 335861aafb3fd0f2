#include <tapeformer/autograd/ops/causal_convolution.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/python/src/arrays.h>
#include <tapeformer/examples/python/src/bindings.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/feed_forward.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <type_traits>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace tapeformer::python {
namespace {

/// What Python gives for a parameter of a C++ function.
template <class T>
using Given = std::conditional_t<std::is_same_v<std::decay_t<T>, Tensor>, Input, std::decay_t<T>>;

/// Adds operations to the module, and as methods of their first argument to Tensor.
class Operations {
 public:
  explicit Operations(nb::module_& module) : module_(module), tensor_(nb::borrow(nb::type<Tensor>())) {}

  template <class Result, class... Arguments, class... Names>
  void add(const char* name, Result (*compute)(Arguments...), const char* help, const nb::arg& first,
           const Names&... rest) {
    const auto call = [compute](const Given<Arguments>&... given) -> Result {
      const nb::gil_scoped_release release;
      return compute(given...);
    };
    module_.def(name, call, first, rest..., help);
    nb::cpp_function_def<Tensor>(call, nb::scope(tensor_), nb::name(name), nb::is_method(), rest..., help);
  }
  void add(Unary function) {
    const auto call = [function](const Input& x) {
      const nb::gil_scoped_release release;
      return unary(function, x);
    };
    module_.def(name_of(function), call, "x"_a);
    nb::cpp_function_def<Tensor>(call, nb::scope(tensor_), nb::name(name_of(function)), nb::is_method());
  }

 private:
  nb::module_& module_;
  nb::object tensor_;
};

using Sizes = std::vector<Index>;

Tensor reshaped(const Tensor& x, const Sizes& sizes) {
  Index known = 1;
  for (const Index size : sizes) known *= size == -1 ? 1 : size;
  Shape shape;
  for (const Index size : sizes) shape.append(size == -1 && known > 0 ? x.elements() / known : size);
  return reshape(x, shape);
}

Tensor product(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b, double scale) {
  return matmul(transpose_a ? transposed(a) : Factor(a), transpose_b ? transposed(b) : Factor(b), scale);
}

Tensor affine_map(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear(x, weight, bias);
}

Tensor loss_of(const Tensor& logits, const Tensor& targets, Index ignored, double smoothing, double softcap) {
  return cross_entropy(logits, targets, {ignored, smoothing, softcap});
}

Tensor turned(const Tensor& x, const Tensor& positions, double base, const std::string& layout) {
  RotaryConfig config;
  config.base = base;
  config.layout = rotary_layout(layout);
  return rotary(x, positions, config);
}

Tensor cast_to(const Tensor& x, const std::string& type) { return cast(x, dtype_named(type)); }

Tensor gated_by(const Tensor& x, const std::string& activation) {
  return gated(activation_named(activation), x);
}

std::vector<Tensor> parts(const Tensor& x, int axis, const Sizes& sizes) {
  const TensorList list = split(x, axis, PooledVector<Index>(sizes.begin(), sizes.end()));
  return {list.begin(), list.end()};
}

}  // namespace

void bind_operations(nb::module_& module) {
  Operations all(module);
  for (const Unary function : kUnaries) all.add(function);
  all.add("add", add, "a + b, which broadcast.", "a"_a, "b"_a);
  all.add("subtract", subtract, "a - b, which broadcast.", "a"_a, "b"_a);
  all.add("multiply", multiply, "a * b, which broadcast.", "a"_a, "b"_a);
  all.add("divide", divide, "a / b, which broadcast.", "a"_a, "b"_a);
  all.add("pow", pow, "x to a constant power.", "x"_a, "exponent"_a);
  all.add("softcap", softcap, "cap tanh(x / cap).", "x"_a, "cap"_a);
  all.add("masked_fill", masked_fill, "value where mask is True, else x.", "x"_a, "mask"_a, "value"_a);
  all.add("cast", cast_to, "The values in another type, recorded.", "x"_a, "dtype"_a);
  all.add("sum", sum, "The sum over axes; over all if there are none.", "x"_a, "axes"_a = nb::none(),
          "keep_axes"_a = false);
  all.add("mean", mean, "The mean over axes; over all if there are none.", "x"_a, "axes"_a = nb::none(),
          "keep_axes"_a = false);
  all.add("max", max, "The maximum over axes; over all if there are none.", "x"_a, "axes"_a = nb::none(),
          "keep_axes"_a = false);
  all.add("var", var, "The variance over axes, divided by n - correction.", "x"_a, "axes"_a = nb::none(),
          "keep_axes"_a = false, "correction"_a = 1.0);
  all.add("reshape", reshaped, "Another shape; one size may be -1.", "x"_a, "sizes"_a);
  all.add("permute", permute, "Axis i of the result is x's axis order[i].", "x"_a, "order"_a);
  all.add("transpose", transpose, "The last two axes swapped.", "x"_a);
  all.add("broadcast_to", broadcast_to, "x repeated along axes of size 1 and new leading ones.", "x"_a,
          "shape"_a);
  all.add("slice", slice, "`size` places along an axis.", "x"_a, "axis"_a, "start"_a, "size"_a);
  all.add("split", parts, "A list of parts along an axis.", "x"_a, "axis"_a, "sizes"_a);
  all.add("pad", pad, "x surrounded by zeros along an axis.", "x"_a, "axis"_a, "start"_a, "size"_a);
  all.add("gather", gather, "As torch.gather; the index is i32.", "x"_a, "axis"_a, "index"_a);
  all.add("matmul", product, "The matrix product of the last two axes, times scale.", "a"_a, "b"_a,
          "transpose_a"_a = false, "transpose_b"_a = false, "scale"_a = 1.0);
  all.add("linear", affine_map, "x weight^T + bias.", "x"_a, "weight"_a, "bias"_a = nb::none());
  all.add("softmax", softmax, "Along an axis; a row of minus infinities gives zeros.", "x"_a, "axis"_a = -1);
  all.add("log_softmax", log_softmax, "The logarithm of softmax.", "x"_a, "axis"_a = -1);
  all.add("layer_norm", layer_norm, "Of the last axis.", "x"_a, "weight"_a = nb::none(),
          "bias"_a = nb::none(), "epsilon"_a = 1e-5);
  all.add("rms_norm", rms_norm, "Of the last axis.", "x"_a, "weight"_a = nb::none(), "epsilon"_a = 1e-6);
  all.add("gated", gated_by, "f(a) * b, where the last axis of x holds a and then b.", "x"_a,
          "activation"_a = "silu");
  all.add("embedding", embedding, "Rows of a table by ids (i32).", "table"_a, "ids"_a);
  all.add("rotary", turned, "x [B, T, H, D] turned by positions i32 [T] or [B, T].", "x"_a, "positions"_a,
          "base"_a = 10000.0, "layout"_a = "interleaved");
  all.add("causal_convolution", causal_convolution, "x [B, T, C] and what its taps [K, C] add.", "x"_a,
          "weight"_a);
  all.add("cross_entropy", loss_of, "Mean negative log likelihood, in nats, of targets that are not ignored.",
          "logits"_a, "targets"_a, "ignored"_a = -1, "smoothing"_a = 0.0, "softcap"_a = 0.0);
  module.def(
      "where", [](const Input& condition, const Input& a, const Input& b) { return where(condition, a, b); },
      "condition"_a, "a"_a, "b"_a, Unlocked(), "a where the condition is True, else b.");
  module.def(
      "concat",
      [](const std::vector<Input>& given, int axis) {
        return concat(TensorList(given.begin(), given.end()), axis);
      },
      "parts"_a, "axis"_a, Unlocked(), "Tensors side by side along an axis.");
  nb::object tensor = nb::borrow(nb::type<Tensor>());
  nb::cpp_function_def<Tensor>([](const Tensor& a, const Input& b) { return matmul(a, b.x); },
                               nb::scope(tensor), nb::name("__matmul__"), nb::is_method(), "other"_a,
                               Unlocked());
  nb::cpp_function_def<Tensor>([](const Tensor& b, const Input& a) { return matmul(a.x, b); },
                               nb::scope(tensor), nb::name("__rmatmul__"), nb::is_method(), "other"_a,
                               Unlocked());
}

}  // namespace tapeformer::python
