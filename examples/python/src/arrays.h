#pragma once

#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/tensor.h>

#include <nanobind/nanobind.h>

// Tensors and the arrays of NumPy, PyTorch and other libraries.
namespace tapeformer::python {

/// A tensor, an array of any library that has DLPack or the buffer protocol, or what NumPy makes an array of
/// (numbers, lists). Dense arrays of the tensors' types are shared, and kept for as long as the tensor's
/// memory; others are copied, other integers as i32.
/// Throws:  TypeError if there is no tensor of that kind, ValueError for an integer beyond i32
Tensor tensor_of(nanobind::handle object);
/// An argument of a function: see tensor_of(). None, where that is the default, is an undefined tensor.
struct Input {
  Tensor x;
  operator const Tensor&() const { return x; }  // NOLINT: it is used as the tensor
};
/// "f32", "f64", "bf16", "i32" or "bool". Throws: ValueError otherwise
DType dtype_named(const std::string& name);
/// The tensor's memory as an array, read-only: operations may have kept the tensor.
nanobind::object numpy_of(const Tensor& x);
/// The memory for any library that reads DLPack; these have no read-only arrays, so it can be written to.
nanobind::object dlpack_of(const Tensor& x);

}  // namespace tapeformer::python

namespace nanobind::detail {

template <>
struct type_caster<tapeformer::python::Input> {
  NB_TYPE_CASTER(tapeformer::python::Input, const_name("Tensor | numpy.typing.ArrayLike"))

  bool from_python(handle source, uint32_t, cleanup_list*) {
    if (!source.is_none()) value.x = tapeformer::python::tensor_of(source);
    return true;
  }
};

/// A whole number or a sequence of them.
template <>
struct type_caster<tapeformer::Shape> {
  NB_TYPE_CASTER(tapeformer::Shape, const_name("int | collections.abc.Sequence[int]"))

  bool from_python(handle source, uint32_t, cleanup_list*) {
    try {
      if (isinstance<int_>(source)) {
        value = {cast<tapeformer::Index>(source)};
        return true;
      }
      if (!isinstance<sequence>(source) || isinstance<str>(source)) return false;
      value = tapeformer::Shape();
      for (const handle size : source) value.append(cast<tapeformer::Index>(size));
      return true;
    } catch (const cast_error&) {
      return false;
    }
  }
  static handle from_cpp(const tapeformer::Shape& shape, rv_policy, cleanup_list*) {
    list sizes;
    for (const tapeformer::Index size : shape) sizes.append(size);
    return nanobind::tuple(sizes).release();
  }
};

}  // namespace nanobind::detail
