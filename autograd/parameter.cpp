#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/parameter.h>

namespace tapeformer {
namespace {

/// Attaches x to the parameter; with nullptr detaches it.
void attach(const Tensor& x, ParameterState* parameter) {
  if (!x.defined()) return;
  x.state()->parameter = parameter;
  x.state()->parameter_name = parameter != nullptr ? &parameter->name : nullptr;
}

/// x, or a copy of it if it is the value of another parameter, which keeps it and its gradients, or a shadow.
Tensor owned(Tensor x, const ParameterState* by) {
  const ParameterState* of = x.defined() ? x.state()->parameter : nullptr;
  return of == nullptr || (of == by && x.state() == by->value.state()) ? x : x.clone();
}

}  // namespace

ParameterState::ParameterState(Tensor initial) : value(owned(std::move(initial), this)) {
  attach(value, this);
  updated.end = value.defined() ? value.elements() : 0;
}

ParameterState::~ParameterState() {
  attach(value, nullptr);
  attach(shadow, nullptr);
}

void ParameterState::require_gradient_buffer() {
  if (!gradient.defined()) gradient = Tensor::empty(value.shape(), wide(value.dtype()), value.device());
}

void Parameter::set_value(Tensor value) {
  const DType used_type = used().dtype(), old_type = state_->value.dtype(), type = value.dtype();
  value = owned(std::move(value), state_.get());
  attach(state_->value, nullptr);
  state_->value = std::move(value);
  attach(state_->value, state_.get());
  state_->gradient = state_->share = Tensor();
  state_->has_gradient = false;
  state_->updated = {0, state_->value.elements()};
  set_shadow(type == old_type ? used_type : type);
}

void Parameter::set_shadow(DType type) {
  const DType own = state_->value.dtype();
  if (type != own && wide(type) != own) {
    throw DTypeError(
        format("[set_shadow] an f32 value may have a shadow in bf16; got {} for value={}; try to(DType::f32) "
               "before",
               name_of(type), state_->value.describe()));
  }
  attach(state_->shadow, nullptr);
  state_->shadow = Tensor();
  if (type == own) return;
  state_->shadow = state_->value.to(type);
  attach(state_->shadow, state_.get());
}

void Parameter::refresh_shadow() {
  if (state_->shadow.defined()) state_->shadow.copy_from(state_->value.to(state_->shadow.dtype()));
}

}  // namespace tapeformer
