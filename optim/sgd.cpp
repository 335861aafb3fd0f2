#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/sgd.h>

namespace tapeformer {

Sgd::Sgd(std::vector<Parameter> parameters, const SgdConfig& config)
    : Optimizer("sgd", std::move(parameters)), config_(config) {
  if (config_.momentum != 0) velocities_ = zeros_like_parameters();
}

void Sgd::step(double learning_rate, double gradient_scale) {
  const kernels::SgdStep step{learning_rate, gradient_scale, config_.momentum, config_.weight_decay};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor gradient = parameters_[i].gradient();
    if (!gradient.defined()) continue;
    const Tensor velocity = velocities_.empty() ? Tensor() : velocities_[i];
    dispatch(
        "sgd",
        [&](auto on, auto* g, auto* v, auto* value) {
          kernels::sgd_step(on, gradient.elements(), step, g, v, value, shadow(i));
        },
        wide(gradient), wide(velocity), wide(parameters_[i].value()));
  }
}

}  // namespace tapeformer
