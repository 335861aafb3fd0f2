#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/storage_limit.h>
#include <tapeformer/autograd/storage_watch.h>
#include <tapeformer/autograd/tensor.h>

#include <algorithm>
#include <cstring>

namespace tapeformer {
namespace {

/// Calls `use` with a typed pointer to the tensor's elements, which the host can read.
template <class Use>
void with_elements(const Tensor& x, Use&& use) {
  switch (x.dtype()) {
    case DType::f32: return use(x.data<float>());
    case DType::f64: return use(x.data<double>());
    case DType::bf16: return use(x.data<BFloat16>());
    case DType::i32: return use(x.data<std::int32_t>());
    case DType::boolean: return use(x.data<bool>());
  }
}

void require_memory(const Tensor& x) {
  if (!x.defined() || x.state()->storage->data != nullptr || x.elements() == 0) return;
  throw Error(
      format("[data] the elements must be in this process' memory; got x={}, which is divided between "
             "processes; try DataParallel::with_whole_values()",
             x.describe()));
}

/// The address of the bytes on any device.
void* address_of(const Tensor& x) {
  require_memory(x);
  return x.state()->storage->data;
}

}  // namespace

void StorageLimit::spend(const Shape& shape, DType type) {
  left -= static_cast<double>(shape.elements() * bytes_of(type));
  if (left < 0) throw Error(format("[memory] {}{} is too large here", name_of(type), shape.text()));
}

Tensor Tensor::empty(const Shape& shape, DType type, Device device) {
  StorageLimit::spend(shape, type);
  const auto bytes = static_cast<std::size_t>(shape.elements() * bytes_of(type));
  return adopt(Handle<Storage>(new Storage(bytes, device)), shape, type);
}

Tensor Tensor::adopt(Handle<Storage> storage, const Shape& shape, DType type) {
  Tensor x;
  x.state_ = Handle<State>(new State);
  x.state_->storage = std::move(storage);
  x.state_->shape = shape;
  x.state_->dtype = type;
  return x;
}

Tensor Tensor::full(const Shape& shape, double value, DType type, Device device) {
  Tensor x = empty(shape, type, device);
  if (device.is_cuda()) {
    cuda::fill(device.index, type, shape.elements(), value, address_of(x));
    return x;
  }
  with_elements(x, [&](auto* to) {
    using T = std::remove_reference_t<decltype(*to)>;
    std::fill(to, to + shape.elements(), static_cast<T>(value));
  });
  return x;
}

double Tensor::item() const {
  if (elements() != 1) throw ShapeError("[item] the tensor must have one element; got x=" + describe());
  return at(0);
}

double Tensor::at(Index position) const {
  if (position < 0 || position >= elements()) {
    throw ShapeError(format("[at] position must be inside the tensor; got {} of x={}", position, describe()));
  }
  if (device().is_cuda() && !cuda::is_host_readable()) {
    const Tensor element = empty({}, dtype(), Device::cpu());
    const Index size = bytes_of(dtype());
    cuda::download(device().index, element.raw(),
                   static_cast<const char*>(address_of(*this)) + position * size,
                   static_cast<std::size_t>(size));
    return element.at(0);
  }
  double value = 0;
  with_elements(*this, [&](const auto* from) { value = static_cast<double>(from[position]); });
  return value;
}

Tensor Tensor::to(DType type) const {
  if (type == dtype()) return detach();
  Tensor y = empty(shape(), type, device());
  if (device().is_cuda()) {
    cuda::convert(device().index, dtype(), address_of(*this), type, address_of(y), elements());
    return y;
  }
  with_elements(*this, [&](const auto* from) {
    with_elements(y, [&](auto* to) {
      using T = std::remove_reference_t<decltype(*to)>;
      std::transform(from, from + elements(), to,
                     [](auto x) { return static_cast<T>(static_cast<double>(x)); });
    });
  });
  return y;
}

Tensor Tensor::to(Device there) const {
  if (there == device()) return *this;
  const auto size = static_cast<std::size_t>(bytes());
  if (there.is_cuda() && !device().is_cuda()) {
    const Tensor y = adopt(Handle<Storage>(new Storage(Storage::ForUpload{size, there})), shape(), dtype());
    cuda::upload(there.index, address_of(y), raw(), size);
    return y;
  }
  const Tensor y = empty(shape(), dtype(), there);
  y.copy_from(*this);
  return y;
}

Tensor Tensor::alias(const Shape& shape) const {
  if (shape.elements() != elements()) {
    throw ShapeError(format("[reshape] the number of elements must stay the same; got x={}, shape={}",
                            describe(), shape.text()));
  }
  return adopt(checked().storage, shape, dtype());
}

Tensor Tensor::clone() const {
  Tensor y = empty_like(*this);
  y.copy_from(*this);
  return y;
}

void Tensor::copy_from(const Tensor& other) const {
  if (other.shape() != shape() || other.dtype() != dtype()) {
    throw ShapeError(
        format("[copy] shapes and types must match; got to={}, from={}", describe(), other.describe()));
  }
  const auto size = static_cast<std::size_t>(bytes());
  const Device from = other.device(), here = device();
  if (!here.is_cuda() && !from.is_cuda()) {
    std::memcpy(address_of(*this), address_of(other), size);
  } else if (!from.is_cuda()) {
    cuda::overwrite(here.index, address_of(*this), address_of(other), size);
  } else if (!here.is_cuda()) {
    cuda::download(from.index, address_of(*this), address_of(other), size);
  } else if (from == here) {
    cuda::copy(here.index, address_of(*this), address_of(other), size);
  } else {
    cuda::copy_across(here.index, address_of(*this), from.index, address_of(other), size);
  }
}

std::string Tensor::describe() const {
  if (!defined()) return "undefined";
  std::string text = name_of(dtype()) + shape().text();
  const std::string* name = state_->parameter_name;
  if (name != nullptr && !name->empty()) text += " (" + *name + ")";
  return text;
}

Tensor::State& Tensor::checked() const {
  if (!state_)
    throw ShapeError("[tensor] the tensor is undefined; try Tensor::zeros or another constructor first");
  StorageWatch::tell(state_->storage);
  return *state_;
}

void Tensor::require_dtype(DType type) const {
  require_memory(*this);
  if (dtype() != type) {
    throw DTypeError(
        format("[data] the element type must be {}; got x={}; try to()", name_of(type), describe()));
  }
}

void Tensor::require_host_readable() const {
  require_memory(*this);
  if (!device().is_cuda()) return;
  cuda::refuse_in_capture("a read of a tensor by the host");
  if (cuda::is_host_readable()) return;
  throw DeviceError(
      format("[data] the elements must be in the CPU's memory; got x={} on {}; try to(Device::cpu()), "
             "to_vector() or item()",
             describe(), device().text()));
}

void Tensor::require_elements(const Shape& shape, std::size_t count) {
  if (static_cast<std::size_t>(shape.elements()) != count) {
    throw ShapeError(
        format("[from] the number of values must be the shape's; got {} values for {}", count, shape.text()));
  }
}

}  // namespace tapeformer
