#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/sgd.h>

namespace tapeformer {

Sgd::Sgd(std::vector<Parameter> parameters, const SgdConfig& config)
    : Optimizer("sgd", std::move(parameters)), config_(config) {
  check_fields("sgd", fields_of(config));
  if (config_.momentum != 0) velocities_ = zeros_like_parameters();
}

void Sgd::gather(double learning_rate, MultiTensorList& table) {
  step_ = {learning_rate, config_.momentum, config_.weight_decay};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].gradient().defined()) continue;
    table.add(parameters_[i], velocities_.empty() ? Tensor() : velocities_[i], Tensor(), 0);
  }
}

void Sgd::update(const kernels::StepTensors& tensors, const Tensor& factor) {
  dispatch(
      "sgd",
      [&](auto on, auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        count_bytes("sgd", tensors.bytes);
        kernels::sgd_step<T>(on, tensors, step_, factor.address<double>());
      },
      wide(no_elements()));
}

}  // namespace tapeformer
