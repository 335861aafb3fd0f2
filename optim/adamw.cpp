#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/adamw.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {

AdamW::AdamW(std::vector<Parameter> parameters, const AdamWConfig& config)
    : Optimizer("adamw", std::move(parameters)),
      config_(config),
      first_moments_(zeros_like_parameters()),
      second_moments_(zeros_like_parameters()),
      steps_(parameters_.size(), 0) {
  check_fields("adamw", fields_of(config));
  if (!(config.epsilon > 0))
    throw Error("[adamw] epsilon must be positive; got " + std::to_string(config.epsilon));
  for (const Parameter& parameter : parameters_) {
    decays_.push_back(config_.decays(parameter) ? config_.weight_decay : 0);
  }
}

void AdamW::gather(double learning_rate, MultiTensorList& table) {
  settings_.clear();
  next_steps_ = steps_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].gradient().defined()) continue;
    const auto count = static_cast<double>(++next_steps_[i]);
    const kernels::AdamWStep own{learning_rate,
                                 config_.beta1,
                                 config_.beta2,
                                 config_.epsilon,
                                 decays_[i],
                                 1 - std::pow(config_.beta1, count),
                                 1 - std::pow(config_.beta2, count)};
    const auto found = std::find_if(settings_.begin(), settings_.end(), [&](const kernels::AdamWStep& other) {
      return other.weight_decay == own.weight_decay && other.bias_correction1 == own.bias_correction1 &&
             other.bias_correction2 == own.bias_correction2;
    });
    table.add(parameters_[i], first_moments_[i], second_moments_[i], found - settings_.begin());
    if (found == settings_.end()) settings_.push_back(own);
  }
}

void AdamW::update(const kernels::StepTensors& tensors, const Tensor& factor) {
  dispatch(
      "adamw",
      [&](auto on, auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        count_bytes("adamw", tensors.bytes);
        kernels::adamw_step<T>(on, tensors, settings_.data(), static_cast<Index>(settings_.size()),
                               factor.address<double>());
      },
      wide(no_elements()));
}

void AdamW::visit_state(OptimizerVisitor& visitor) {
  settle();
  visit_tensors(visitor, "first_moment", first_moments_);
  visit_tensors(visitor, "second_moment", second_moments_);
  for (std::size_t i = 0; i < steps_.size(); ++i) visitor.counter(state_name("steps", i), steps_[i]);
}

}  // namespace tapeformer
