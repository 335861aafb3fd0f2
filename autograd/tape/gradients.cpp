#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/elementwise.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

// Contributions to a gradient are added in a parameter's buffer, in a slot's, or in a separate one.
namespace tapeformer {

void Tape::accumulate(std::int32_t index, const Tensor& gradient) {
  const auto at = static_cast<std::size_t>(index);
  const DType type = gradient_type(slots_[at]);
  Tensor value = sum_to(gradient, slots_[at].shape);
  if (value.dtype() != type) value = cast(value, type);
  const auto add_in_place = [&](const Tensor& to) {
    dispatch("add", operands(to, value),
             [&](auto on, auto* sum, auto* x) { kernels::add_in_place(on, to.elements(), x, sum); });
  };
  ParameterState* parameter = slots_[at].parameter.get();
  if (to_parameters_ && parameter != nullptr) {
    check_unchanged(slots_[at]);
    parameter->require_gradient_buffer();
    if (parameter->has_gradient || slots_[at].written) {
      add_in_place(parameter->gradient);
    } else {
      parameter->gradient.copy_from(value);
    }
    parameter->has_gradient = true;
  } else if (!slots_[at].gradient.defined()) {
    slots_[at].gradient = value;
  } else if (!recorded_ && slots_[at].gradient.is_sole_owner()) {
    add_in_place(slots_[at].gradient);
  } else {
    const Tensor sum = add(slots_[at].gradient, value);
    slots_[at].gradient = sum;
  }
}

void Tape::contribute(std::size_t node, std::size_t input, const Tensor& gradient) {
  const std::int32_t slot = nodes_[node].inputs[input];
  if (!wrapper_) return accumulate(slot, gradient);
  const Shape shape = slots_[static_cast<std::size_t>(slot)].shape;
  const char* op = nodes_[node].op;
  const Tensor wrapped = wrapper_({op, node, input, slot, recorded_}, sum_to(gradient, shape));
  if (wrapped.shape() != shape)
    throw ShapeError(format("[{}] a wrapped gradient must keep its shape {}; got wrapped={}", op,
                            shape.text(), wrapped.describe()));
  accumulate(slot, wrapped);
}

void GradientSlot::operator+=(const Tensor& gradient) const {
  if (slot_ >= 0) into_.tape_.contribute(into_.node_, input_, gradient);
}

DType Tape::gradient_type(const Slot& slot) const {
  return to_parameters_ && slot.parameter ? wide(slot.dtype) : slot.dtype;
}

GradientSlot::Target GradientSlot::target(bool is_wide) const {
  if (slot_ < 0) return {{}, false};
  Tape::Slot& slot = into_.tape_.slots_[static_cast<std::size_t>(slot_)];
  const DType type = is_wide ? wide(slot.dtype) : slot.dtype;
  if (separate_ || type != into_.tape_.gradient_type(slot)) {
    into_.separate_.emplace_back(input_, Tensor::empty(slot.shape, type, slot.device));
    return {into_.separate_.back().second, false};
  }
  if (into_.tape_.to_parameters_ && slot.parameter) {
    ParameterState& parameter = *slot.parameter;
    into_.tape_.check_unchanged(slot);
    parameter.require_gradient_buffer();
    const bool add = std::exchange(slot.written, true) || parameter.has_gradient;
    return {parameter.gradient, add};
  }
  if (!slot.gradient.defined()) {
    slot.gradient = Tensor::empty(slot.shape, slot.dtype, slot.device);
    return {slot.gradient, false};
  }
  if (!slot.gradient.is_sole_owner()) slot.gradient = slot.gradient.clone();
  return {slot.gradient, true};
}

GradientSlot Gradients::operator[](std::size_t input) const {
  const PooledVector<std::int32_t>& inputs = tape_.nodes_[node_].inputs;
  if (input >= inputs.size())
    throw TapeError(format("[{}] into[i] must be an input that was recorded; got into[{}] of {}",
                           tape_.nodes_[node_].op, input, number_of(inputs.size(), "input")));
  const std::int32_t slot = inputs[input];
  const auto here = inputs.begin() + static_cast<std::ptrdiff_t>(input);
  const bool separate = slot >= 0 && (tape_.wrapper_ || std::find(inputs.begin(), here, slot) != here);
  return {*this, input, slot, separate};
}

}  // namespace tapeformer
