#pragma once

#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/dtype.h>
#include <tapeformer/autograd/shape.h>
#include <tapeformer/autograd/storage.h>

#include <algorithm>
#include <string>
#include <vector>

/// Tensors, the tape that differentiates their operations, layers, models, optimizers and data.
namespace tapeformer {

class Generator;
struct ParameterState;

/// A cheap handle on shared storage: dense, row-major, contiguous. Copying a Tensor copies the handle.
/// A value that a tape has recorded must not be changed through data().
class Tensor {
 public:
  Tensor() = default;

  /// Memory from the pool, contents undefined.
  static Tensor empty(const Shape& shape, DType type = DType::f32, Device device = default_device());
  /// Shape, type and device of x, contents undefined.
  static Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }
  /// All elements 0.
  static Tensor zeros(const Shape& shape, DType type = DType::f32, Device device = default_device()) {
    return full(shape, 0, type, device);
  }
  /// All elements `value`, converted to the type.
  static Tensor full(const Shape& shape, double value, DType type = DType::f32,
                     Device device = default_device());
  /// A tensor of rank 0.
  static Tensor scalar(double value, DType type = DType::f32, Device device = default_device()) {
    return full({}, value, type, device);
  }
  /// A scalar of x's type, on its device.
  static Tensor scalar_like(const Tensor& x, double value) { return scalar(value, x.dtype(), x.device()); }
  /// Uniform in [0, 1).
  static Tensor rand(const Shape& shape, Generator& random, DType type = DType::f32,
                     Device device = default_device());
  /// Standard normal.
  static Tensor randn(const Shape& shape, Generator& random, DType type = DType::f32,
                      Device device = default_device());
  /// A copy of `values`. Throws: ShapeError unless there are shape.elements() of them.
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape);
  /// `values` as a vector.
  template <class T>
  static Tensor from(const std::vector<T>& values) {
    return from(values, {static_cast<Index>(values.size())});
  }
  /// Shares existing memory; see Storage.
  static Tensor adopt(Handle<Storage> storage, const Shape& shape, DType type);

  /// False for a default-constructed handle; asking one for its shape, type or elements throws ShapeError.
  bool defined() const { return static_cast<bool>(state_); }
  /// The sizes of the axes, outermost first.
  const Shape& shape() const { return checked().shape; }
  /// The number of axes.
  int rank() const { return shape().rank(); }
  /// The size of one axis; negative ones count from the end.
  Index size(int axis) const { return shape()[axis]; }
  /// The number of elements.
  Index elements() const { return shape().elements(); }
  /// The size of the elements in bytes.
  Index bytes() const { return elements() * bytes_of(dtype()); }
  /// The type of the elements.
  DType dtype() const { return checked().dtype; }
  /// The device of the elements.
  Device device() const { return checked().storage->device; }

  /// The elements, for the host to read and write.
  /// Throws: DTypeError unless T is the type of the elements, DeviceError if they are on a GPU.
  template <class T>
  T* data() const {
    require_host_readable();
    return address<T>();
  }
  /// The address of the elements, for kernels: on a GPU the host cannot read it.
  /// Throws:  DTypeError unless T is the type of the elements
  template <class T>
  T* address() const {
    require_dtype(dtype_of<T>());
    return static_cast<T*>(checked().storage->data);
  }
  /// data() without a type.
  void* raw() const {
    require_host_readable();
    return checked().storage->data;
  }
  /// A copy of the elements, wherever they are.
  template <class T>
  std::vector<T> to_vector() const;
  /// The only element, of any type. Throws: ShapeError unless there is exactly one.
  double item() const;
  /// An element by its position in memory, of any type; for tests and printing.
  double at(Index position) const;

  /// The values in another type, outside any tape; the tensor itself if it has that type. cast() is the
  /// recorded operation.
  Tensor to(DType type) const;
  /// The values on another device, outside any tape; the tensor itself if it is already there. An upload
  /// overlaps with queued kernels; a download waits for them.
  Tensor to(Device device) const;
  /// A tensor of the same values, unknown to every tape.
  Tensor detach() const { return alias(shape()); }
  /// Another shape on the same storage, unknown to every tape; reshape() is the recorded operation.
  Tensor alias(const Shape& shape) const;
  /// A copy in memory of its own, unknown to every tape.
  Tensor clone() const;
  /// Overwrites these elements with those of `other`, which may be on another device.
  /// Throws: ShapeError unless shapes and types match.
  void copy_from(const Tensor& other) const;

  /// "f32[2,8,64]", followed by the parameter's path if there is one.
  std::string describe() const;
  /// True when no other handle or tensor can see these bytes.
  bool is_sole_owner() const { return state_.is_sole() && state_->storage.is_sole(); }

  struct State : Pooled {
    Handle<Storage> storage;
    Shape shape;
    DType dtype = DType::f32;
    std::int32_t slot = -1;               ///< of this value's gradient on the tape
    std::uint64_t tape = 0;               ///< the tape that stamped it; 0 for none
    ParameterState* parameter = nullptr;  ///< set while this is a parameter's value
    const std::string* parameter_name = nullptr;
  };
  /// For the tape: the state that the handles of this value share.
  State* state() const { return state_.get(); }

 private:
  State& checked() const;
  void require_dtype(DType type) const;
  void require_host_readable() const;
  static void require_elements(const Shape& shape, std::size_t count);

  Handle<State> state_;
};

/// Axes by number, negative ones counted from the end.
using Axes = PooledVector<int>;
/// Inputs or outputs of an operation whose number varies.
using TensorList = PooledVector<Tensor>;

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape) {
  require_elements(shape, values.size());
  const Tensor x = empty(shape, dtype_of<T>(), Device::cpu());
  std::copy(values.begin(), values.end(), x.data<T>());
  return x.to(default_device());
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor here = to(Device::cpu());
  return std::vector<T>(here.data<T>(), here.data<T>() + elements());
}

}  // namespace tapeformer
