#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/python/src/arrays.h>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <optional>

namespace nb = nanobind;

namespace tapeformer::python {
namespace {

using Array = nb::ndarray<nb::ro, nb::device::cpu>;

nb::dlpack::dtype dlpack_type(DType type) {
  switch (type) {
    case DType::f32: return nb::dtype<float>();
    case DType::f64: return nb::dtype<double>();
    case DType::i32: return nb::dtype<std::int32_t>();
    case DType::boolean: return nb::dtype<bool>();
    case DType::bf16: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
  }
  return {};
}

/// The tensor's type of the same elements.
std::optional<DType> same_type(nb::dlpack::dtype type) {
  for (const DType ours : {DType::f32, DType::f64, DType::i32, DType::boolean, DType::bf16}) {
    if (type == dlpack_type(ours)) return ours;
  }
  return {};
}

Shape shape_of(const Array& array) {
  Shape shape;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) shape.append(array.shape(axis));
  return shape;
}

/// Row-major without gaps, and at an address that is a multiple of the elements' size.
bool is_dense(const Array& array) {
  std::int64_t stride = 1;
  for (std::size_t axis = array.ndim(); axis-- > 0;) {
    if (array.shape(axis) != 1 && array.stride(axis) != stride) return false;
    stride *= static_cast<std::int64_t>(array.shape(axis));
  }
  return reinterpret_cast<std::uintptr_t>(array.data()) % array.itemsize() == 0;
}

/// Calls put(i, address) for the i-th element in row-major order.
template <class Put>
void for_each_element(const Array& array, const Put& put) {
  const Shape shape = shape_of(array);
  std::vector<Index> at(array.ndim(), 0);
  const auto* element = static_cast<const char*>(array.data());
  const auto bytes = static_cast<std::int64_t>(array.itemsize());
  for (Index i = 0; i < shape.elements(); ++i) {
    put(i, element);
    for (std::size_t axis = array.ndim(); axis-- > 0;) {
      element += array.stride(axis) * bytes;
      if (++at[axis] < shape[static_cast<int>(axis)]) break;
      element -= at[axis] * array.stride(axis) * bytes;
      at[axis] = 0;
    }
  }
}

/// As i32. An integer of another size, at an address that need not be a multiple of it.
template <class Integer>
Tensor converted(const Array& array) {
  const Tensor x = Tensor::empty(shape_of(array), DType::i32, Device::cpu());
  auto* const to = x.data<std::int32_t>();
  for_each_element(array, [&](Index i, const char* from) {
    Integer value;
    std::memcpy(&value, from, sizeof value);
    to[i] = static_cast<std::int32_t>(value);
    if (static_cast<Integer>(to[i]) != value || (to[i] < 0) != (value < Integer{0})) {
      throw nb::value_error(("a tensor of integers holds i32; got " + std::to_string(value)).c_str());
    }
  });
  return x;
}

std::optional<Tensor> integers(const Array& array) {
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<std::int64_t>()) return converted<std::int64_t>(array);
  if (type == nb::dtype<std::int16_t>()) return converted<std::int16_t>(array);
  if (type == nb::dtype<std::int8_t>()) return converted<std::int8_t>(array);
  if (type == nb::dtype<std::uint64_t>()) return converted<std::uint64_t>(array);
  if (type == nb::dtype<std::uint32_t>()) return converted<std::uint32_t>(array);
  if (type == nb::dtype<std::uint16_t>()) return converted<std::uint16_t>(array);
  if (type == nb::dtype<std::uint8_t>()) return converted<std::uint8_t>(array);
  return {};
}

Tensor shared(const Array& array, DType type) {
  // The array goes with the storage, on whichever thread: nanobind takes the interpreter's lock for that.
  const Handle<Storage> storage(
      new Storage(const_cast<void*>(array.data()), array.nbytes(), [array] {}));  // NOLINT: see numpy_of()
  return Tensor::adopt(storage, shape_of(array), type);
}

Tensor copied(const Array& array, DType type) {
  const Tensor x = Tensor::empty(shape_of(array), type, Device::cpu());
  auto* const to = static_cast<char*>(x.raw());
  const std::size_t bytes = array.itemsize();
  for_each_element(array, [&](Index i, const char* from) {
    std::memcpy(to + static_cast<std::size_t>(i) * bytes, from, bytes);
  });
  return x;
}

std::string text_of(nb::handle object) {
  return nb::cast<std::string>(nb::steal<nb::str>(PyObject_Str(object.ptr())));
}

/// What NumPy makes of numbers and lists of them.
nb::object numpy_array(nb::handle object) {
  if (PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr()) || nb::isinstance<nb::list>(object) ||
      nb::isinstance<nb::tuple>(object) || nb::hasattr(object, "__array_interface__")) {
    return nb::module_::import_("numpy").attr("asarray")(object);
  }
  return nb::borrow(object);
}

template <class Framework, class... Access>
nb::object array_of(const Tensor& x) {
  const Tensor here = x.to(Device::cpu());
  std::vector<std::size_t> sizes(here.shape().begin(), here.shape().end());
  auto* const owner = new Tensor(here);
  const nb::capsule keeps(owner, [](void* tensor) noexcept { delete static_cast<Tensor*>(tensor); });
  const nb::ndarray<Framework, Access...> array(here.raw(), sizes.size(), sizes.data(), keeps, nullptr,
                                                dlpack_type(here.dtype()), nb::device::cpu::value, 0);
  return nb::cast(array);
}

}  // namespace

Tensor tensor_of(nb::handle object) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<Tensor>(object);
  const nb::object source = numpy_array(object);
  Array array;
  const auto elements = [&source] { return text_of(nb::getattr(source, "dtype", nb::str("?"))); };
  if (!nb::try_cast(source, array, false)) {
    const std::string kind = text_of(source.type()),
                      what = nb::hasattr(source, "dtype") ? kind + " of " + elements() : kind;
    throw nb::type_error(("a tensor is made of an array of numbers in the CPU's memory; got " + what +
                          "; try NumPy's astype(), or PyTorch's cpu()")
                             .c_str());
  }
  if (const auto type = same_type(array.dtype())) {
    return is_dense(array) ? shared(array, *type) : copied(array, *type);
  }
  if (const auto whole = integers(array)) return *whole;
  throw nb::type_error(("a tensor holds float32, float64, int32 or bool; got an array of " + elements() +
                        "; try astype(numpy.float64)")
                           .c_str());
}

DType dtype_named(const std::string& name) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::boolean}) {
    if (name == name_of(type)) return type;
  }
  throw nb::value_error(("a type is f32, f64, bf16, i32 or bool; got " + name).c_str());
}

nb::object numpy_of(const Tensor& x) {
  if (x.dtype() == DType::bf16) {
    throw DTypeError("[numpy] NumPy has no bf16; got x=" + x.describe() + "; try to(\"f32\")");
  }
  return array_of<nb::numpy, nb::ro>(x);
}

nb::object dlpack_of(const Tensor& x) { return array_of<nb::array_api>(x); }

}  // namespace tapeformer::python
