#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/schedule_free.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapeformer {

ScheduleFreeAdamW::ScheduleFreeAdamW(std::vector<Parameter> parameters, const ScheduleFreeConfig& config)
    : Optimizer("schedule_free", std::move(parameters)),
      config_(config),
      differences_(zeros_like_parameters()),
      second_moments_(zeros_like_parameters()),
      totals_(parameters_.size()) {
  check_fields("schedule_free", fields_of(config));
  if (!(config.beta1 > 0)) throw Error("[schedule_free] beta1 must be above 0; got 0");
  if (!(config.epsilon > 0))
    throw Error("[schedule_free] epsilon must be positive; got " + std::to_string(config.epsilon));
  for (const Parameter& parameter : parameters_)
    decays_.push_back(config_.decays(parameter) ? config_.weight_decay : 0);
}

void ScheduleFreeAdamW::gather(double learning_rate, MultiTensorList& table) {
  settings_.clear();
  next_totals_ = totals_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].gradient().defined()) continue;
    Totals& totals = next_totals_[i];
    const auto count = static_cast<double>(++totals.steps);
    const double rate = learning_rate * std::sqrt(1 - std::pow(config_.beta2, count));
    totals.weights += rate * rate;
    const double weight = totals.weights > 0 ? rate * rate / totals.weights : 1;
    const kernels::ScheduleFreeStep own{rate,       config_.beta1, config_.beta2, config_.epsilon,
                                        decays_[i], weight};
    const auto found =
        std::find_if(settings_.begin(), settings_.end(), [&](const kernels::ScheduleFreeStep& other) {
          return other.rate == own.rate && other.weight_decay == own.weight_decay &&
                 other.weight == own.weight;
        });
    table.add(parameters_[i], differences_[i], second_moments_[i], found - settings_.begin());
    if (found == settings_.end()) settings_.push_back(own);
  }
}

void ScheduleFreeAdamW::update(const kernels::StepTensors& tensors, const Tensor& factor) {
  dispatch(
      "schedule_free",
      [&](auto on, auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        count_bytes("schedule_free", tensors.bytes);
        kernels::schedule_free_step<T>(on, tensors, settings_.data(), static_cast<Index>(settings_.size()),
                                       factor.address<double>());
      },
      wide(no_elements()));
}

/// x of every parameter.
std::vector<Tensor> ScheduleFreeAdamW::averages() const {
  std::vector<Tensor> averages = zeros_like_parameters();
  MultiTensorList list;
  list.begin("schedule_free");
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    list.add(parameters_[i], differences_[i], averages[i], 0);
  list.end();
  if (list.empty()) return averages;
  dispatch(
      "schedule_free",
      [&](auto on, auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        kernels::add_state<T>(on, list.tensors(), (config_.beta1 - 1) / config_.beta1);
      },
      wide(no_elements()));
  return averages;
}

bool ScheduleFreeAdamW::exchange_weights() {
  if (trained_.empty()) {
    trained_ = averages();
    exchange_values(trained_);
  } else {
    exchange_values(trained_);
    trained_.clear();
  }
  return true;
}

void ScheduleFreeAdamW::visit_state(OptimizerVisitor& visitor) {
  settle();
  visit_tensors(visitor, "difference", differences_);
  visit_tensors(visitor, "second_moment", second_moments_);
  for (std::size_t i = 0; i < totals_.size(); ++i) {
    visitor.counter(state_name("steps", i), totals_[i].steps);
    visitor.number(state_name("weight_sum", i), totals_[i].weights);
  }
}

}  // namespace tapeformer
