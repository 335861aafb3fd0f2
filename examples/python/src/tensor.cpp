#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/examples/python/src/arrays.h>
#include <tapeformer/examples/python/src/bindings.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace tapeformer::python {
namespace {

std::string text_of(const Tensor& x) {
  const std::string values =
      x.elements() == 1 ? " " + nb::cast<std::string>(nb::str(nb::float_(x.item()))) : "";
  return "tapeformer.Tensor(" + x.describe() + values + ")";
}

/// The other operand of arithmetic: a number takes the tensor's type.
Tensor operand(const Tensor& x, nb::handle other) {
  if (PyFloat_Check(other.ptr()) || PyLong_Check(other.ptr())) {
    return Tensor::scalar_like(x, nb::cast<double>(nb::float_(other)));
  }
  return tensor_of(other);
}

using Binary = Tensor (*)(const Tensor&, const Tensor&);

void bind_arithmetic(nb::class_<Tensor>& tensor, const char* name, const char* reflected, Binary compute) {
  const auto unlocked = [compute](const Tensor& a, const Tensor& b) {
    const nb::gil_scoped_release release;
    return compute(a, b);
  };
  tensor.def(
      name, [unlocked](const Tensor& x, nb::object other) { return unlocked(x, operand(x, other)); },
      "other"_a);
  tensor.def(
      reflected, [unlocked](const Tensor& x, nb::object other) { return unlocked(operand(x, other), x); },
      "other"_a);
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor> tensor(
      module, "Tensor",
      "Numbers of one type (f32, f64, bf16, i32, bool), dense and row-major.\n\n"
      "A dense array of such a type is shared, not copied: do not change it while it is computed with.");
  tensor.def(
      "__init__",
      [](Tensor* self, const Input& values, const std::optional<std::string>& dtype, bool copy) {
        const Tensor x = dtype ? values.x.to(dtype_named(*dtype)) : values.x;
        new (self) Tensor(copy ? x.clone() : x);
      },
      "values"_a, "dtype"_a = nb::none(), "copy"_a = false);
  tensor.def_prop_ro("shape", [](const Tensor& x) { return x.shape(); })
      .def_prop_ro("ndim", &Tensor::rank)
      .def_prop_ro("dtype", [](const Tensor& x) { return name_of(x.dtype()); })
      .def(
          "to", [](const Tensor& x, const std::string& type) { return x.to(dtype_named(type)); }, "dtype"_a,
          "The values in another type, a constant for gradcheck().")
      .def("detach", &Tensor::detach, "The same values, a constant for gradcheck().")
      .def("clone", &Tensor::clone, Unlocked())
      .def("item", &Tensor::item, "The only element.")
      .def("__float__", &Tensor::item)
      .def("numpy", &numpy_of, "The same memory as a NumPy array, which is read-only.")
      .def(
          "__array__",
          [](const Tensor& x, nb::object dtype, nb::object copy) {
            const nb::object numpy = nb::module_::import_("numpy"), view = numpy_of(x);
            return copy.is_none() ? numpy.attr("asarray")(view, dtype)
                                  : numpy.attr("array")(view, dtype, "copy"_a = copy);
          },
          "dtype"_a = nb::none(), "copy"_a = nb::none())
      .def(
          "__dlpack__",
          [](const Tensor& x, const nb::kwargs& options) {
            return dlpack_of(x).attr("__dlpack__")(**options);
          },
          "The same memory for other libraries, such as torch.from_dlpack().")
      .def("__dlpack_device__", [](const Tensor& x) { return dlpack_of(x).attr("__dlpack_device__")(); })
      .def("__len__",
           [](const Tensor& x) {
             if (x.rank() == 0) throw nb::type_error("a tensor without axes has no length");
             return x.size(0);
           })
      .def(
          "__neg__", [](const Tensor& x) { return affine(x, -1, 0); }, Unlocked())
      .def(
          "__pow__", [](const Tensor& x, double exponent) { return pow(x, exponent); }, "exponent"_a,
          Unlocked())
      .def("__repr__", &text_of);
  tensor.attr("__array_priority__") = 1000;  // so that array * tensor is a tensor
  tensor.attr("__array_ufunc__") = nb::none();
  bind_arithmetic(tensor, "__matmul__", "__rmatmul__",
                  [](const Tensor& a, const Tensor& b) { return matmul(a, b); });
  bind_arithmetic(tensor, "__add__", "__radd__", add);
  bind_arithmetic(tensor, "__sub__", "__rsub__", subtract);
  bind_arithmetic(tensor, "__mul__", "__rmul__", multiply);
  bind_arithmetic(tensor, "__truediv__", "__rtruediv__", divide);
}

}  // namespace tapeformer::python
