#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/parameter.h>
#include <tapeformer/autograd/tensor.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// Calls `use` with a typed pointer to the tensor's elements.
template <class Use>
void with_elements(const Tensor& x, Use&& use) {
  switch (x.dtype()) {
    case DType::f32: return use(x.data<float>());
    case DType::f64: return use(x.data<double>());
    case DType::i32: return use(x.data<std::int32_t>());
    case DType::boolean: return use(x.data<bool>());
  }
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType type, Device device) {
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

Tensor Tensor::full(const Shape& shape, double value, DType type) {
  Tensor x = empty(shape, type);
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
    throw ShapeError("[at] position must be inside the tensor; got " + std::to_string(position) +
                     " of x=" + describe());
  }
  double value = 0;
  with_elements(*this, [&](const auto* from) { value = static_cast<double>(from[position]); });
  return value;
}

Tensor Tensor::to(DType type) const {
  if (type == dtype()) return detach();
  Tensor y = empty(shape(), type, device());
  with_elements(*this, [&](const auto* from) {
    with_elements(y, [&](auto* to) {
      using T = std::remove_reference_t<decltype(*to)>;
      for (Index i = 0; i < elements(); ++i) to[i] = static_cast<T>(from[i]);
    });
  });
  return y;
}

Tensor Tensor::alias(const Shape& shape) const {
  if (shape.elements() != elements()) {
    throw ShapeError("[reshape] the number of elements must stay; got x=" + describe() +
                     ", shape=" + shape.text());
  }
  return adopt(checked().storage, shape, dtype());
}

Tensor Tensor::clone() const {
  Tensor y = empty_like(*this);
  std::memcpy(y.raw(), raw(), static_cast<std::size_t>(bytes()));
  return y;
}

void Tensor::copy_from(const Tensor& other) const {
  if (other.shape() != shape() || other.dtype() != dtype()) {
    throw ShapeError("[copy] shapes and types must match; got to=" + describe() +
                     ", from=" + other.describe());
  }
  std::memcpy(raw(), other.raw(), static_cast<std::size_t>(bytes()));
}

std::string Tensor::describe() const {
  if (!defined()) return "undefined";
  std::string text = name_of(dtype()) + shape().text();
  const ParameterState* parameter = state_->parameter;
  if (parameter != nullptr && !parameter->name.empty()) text += " (" + parameter->name + ")";
  return text;
}

Tensor::State& Tensor::checked() const {
  if (!state_)
    throw ShapeError("[tensor] the tensor is undefined; try Tensor::zeros or another constructor first");
  return *state_;
}

void Tensor::require_dtype(DType type) const {
  if (dtype() != type) {
    throw DTypeError(std::string("[data] the element type must be ") + name_of(dtype()) + "; got " +
                     name_of(type) + " for x=" + describe() + "; try to()");
  }
}

void Tensor::require_elements(const Shape& shape, std::size_t count) {
  if (static_cast<std::size_t>(shape.elements()) != count) {
    throw ShapeError("[from] the number of values must be the shape's; got " + std::to_string(count) +
                     " values for " + shape.text());
  }
}

ParameterState::ParameterState(Tensor initial) : value(std::move(initial)) {
  value.state()->parameter = this;
}

ParameterState::~ParameterState() { value.state()->parameter = nullptr; }

void Parameter::set_value(Tensor value) {
  state_->value.state()->parameter = nullptr;
  state_->value = std::move(value);
  state_->value.state()->parameter = state_.get();
  state_->gradient = Tensor();
  state_->has_gradient = false;
}

}  // namespace tapeformer
