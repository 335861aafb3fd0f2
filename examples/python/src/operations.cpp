#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/examples/python/src/arrays.h>
#include <tapeformer/examples/python/src/bindings.h>

#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

// Operations for functions that gradcheck() checks, besides the arithmetic of tensor.cpp.
namespace tapeformer::python {

void bind_operations(nb::module_& module) {
  for (const Unary function : kUnaries) {
    module.def(
        name_of(function), [function](const Input& x) { return unary(function, x); }, "x"_a, Unlocked());
  }
  module.def(
      "matmul", [](const Input& a, const Input& b) { return matmul(a.x, b.x); }, "a"_a, "b"_a, Unlocked(),
      "The matrix product of the last two axes.");
  module.def(
      "softmax", [](const Input& x, int axis) { return softmax(x, axis); }, "x"_a, "axis"_a = -1, Unlocked(),
      "Softmax along an axis; a row of minus infinities gives zeros.");
  const auto reduction = [&](const char* name, auto* reduce, const char* help) {
    module.def(
        name,
        [reduce](const Input& x, const std::vector<int>& axes, bool keep) {
          return reduce(x, {axes.begin(), axes.end()}, keep);
        },
        "x"_a, "axes"_a = std::vector<int>(), "keep_axes"_a = false, Unlocked(), help);
  };
  reduction("sum", sum, "The sum over axes; over all if none is given.");
  reduction("mean", mean, "The mean over axes; over all if none is given.");
  module.def(
      "reshape", [](const Input& x, const Shape& shape) { return reshape(x, shape); }, "x"_a, "shape"_a,
      Unlocked());
  module.def(
      "permute",
      [](const Input& x, const std::vector<int>& order) {
        return permute(x, {order.begin(), order.end()});
      },
      "x"_a, "order"_a, Unlocked(), "Axis i of the result is x's axis order[i].");
}

}  // namespace tapeformer::python
