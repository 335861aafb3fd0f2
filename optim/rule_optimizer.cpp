#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/rule_optimizer.h>

#include <algorithm>
#include <cstring>

namespace tapeformer {

template <class Step>
RuleOptimizer<Step>::RuleOptimizer(std::string algorithm, std::vector<Parameter> parameters,
                                   const std::vector<const char*>& states, const FieldList& fields)
    : Optimizer(std::move(algorithm), std::move(parameters)), names_(states) {
  check_fields(this->algorithm(), fields);
  for (std::size_t k = 0; k < names_.size(); ++k) states_.push_back(zeros_like_parameters());
}

template <class Step>
void RuleOptimizer<Step>::gather(double learning_rate, MultiTensorList& table) {
  settings_.clear();
  const auto state = [&](std::size_t k, std::size_t i) {
    return k < states_.size() ? states_[k][i] : Tensor();
  };
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].gradient().defined()) continue;
    const Step own = settings(i, learning_rate);
    const auto found = std::find_if(settings_.begin(), settings_.end(), [&](const Step& other) {
      return std::memcmp(&own, &other, sizeof own) == 0;
    });
    table.add(parameters_[i], state(0, i), state(1, i), found - settings_.begin());
    if (found == settings_.end()) settings_.push_back(own);
  }
}

template <class Step>
void RuleOptimizer<Step>::update(const kernels::StepTensors& tensors, const Tensor& factor) {
  const char* const name = algorithm().c_str();
  dispatch(name, operands(wide(no_elements())), [&](auto on, auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    count_bytes(name, tensors.bytes);
    kernels::optimizer_step<T>(on, tensors, settings_.data(), static_cast<Index>(settings_.size()),
                               factor.address<double>());
  });
}

template <class Step>
void RuleOptimizer<Step>::visit_state(OptimizerVisitor& visitor) {
  count_last_step();
  for (std::size_t k = 0; k < states_.size(); ++k) visit_tensors(visitor, names_[k], states_[k]);
}

#define INSTANTIATE_RULE(Step, none) template class RuleOptimizer<kernels::Step>;
TAPEFORMER_STEPS(INSTANTIATE_RULE, )

}  // namespace tapeformer
