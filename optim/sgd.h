#pragma once

#include <tapeformer/optim/rule_optimizer.h>

#include <utility>
#include <vector>

namespace tapeformer {

struct SgdConfig {
  double momentum = 0;
  double weight_decay = 0;  ///< added to the gradient, times the value

  void describe(const FieldVisitor& field) {
    field("momentum", momentum, "share of the last velocity that is kept", kBelowOne);
    field("weight_decay", weight_decay, "decay of all parameters", kNotNegative);
  }
};

/// Stochastic gradient descent with momentum.
/// Math:    velocity = momentum velocity + g + decay x;  x = x - lr velocity
/// Source:  Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning", in
///          the form of torch.optim.SGD without dampening
class Sgd : public RuleOptimizer<kernels::SgdStep> {
 public:
  using Config = SgdConfig;
  /// Throws: Error naming a field of the config that violates its rule
  explicit Sgd(std::vector<Parameter> parameters, const SgdConfig& config = {})
      : RuleOptimizer("sgd", std::move(parameters), states_of(config), fields_of(config)), config_(config) {}

 private:
  static std::vector<const char*> states_of(const SgdConfig& config) {
    if (config.momentum == 0) return {};
    return {"velocity"};
  }
  kernels::SgdStep settings(std::size_t, double learning_rate) override {
    return {learning_rate, config_.momentum, config_.weight_decay};
  }

  SgdConfig config_;
};

}  // namespace tapeformer
