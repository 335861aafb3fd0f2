#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/lion.h>

#include <utility>

namespace tapeformer {

Lion::Lion(std::vector<Parameter> parameters, const LionConfig& config)
    : Optimizer("lion", std::move(parameters)), config_(config), moments_(zeros_like_parameters()) {
  check_fields("lion", fields_of(config));
  for (const Parameter& parameter : parameters_) decays_.push_back(config_.decays(parameter));
}

void Lion::gather(double learning_rate, MultiTensorList& table) {
  settings_[0] = {learning_rate, config_.beta1, config_.beta2, 0};
  settings_[1] = {learning_rate, config_.beta1, config_.beta2, config_.weight_decay};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].gradient().defined()) continue;
    table.add(parameters_[i], moments_[i], Tensor(), decays_[i] ? 1 : 0);
  }
}

void Lion::update(const kernels::StepTensors& tensors, const Tensor& factor) {
  dispatch(
      "lion",
      [&](auto on, auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        count_bytes("lion", tensors.bytes);
        kernels::lion_step<T>(on, tensors, settings_, 2, factor.address<double>());
      },
      wide(no_elements()));
}

}  // namespace tapeformer
