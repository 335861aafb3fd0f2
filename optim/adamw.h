#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/optim/rule_optimizer.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace tapeformer {

/// True for matrices and tables, which decay; biases and the gains of norms do not.
inline bool has_rank_two(const Parameter& parameter) { return parameter.value().rank() >= 2; }

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;  ///< not an option: --epsilon is that of the models' norms
  double weight_decay = 0.01;

  void describe(const FieldVisitor& field) {
    field("weight_decay", weight_decay, "decay of matrices", kNotNegative);
    field("beta1", beta1, "decay of the first moment", kBelowOne);
    field("beta2", beta2, "decay of the second moment", kBelowOne);
  }
};

/// Adam with weight decay decoupled from the gradient.
/// Math:    m = m + (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;  t counts this parameter's steps
///          x = x (1 - lr decay) - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
/// Source:  Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2, in the order of torch.optim.AdamW
class AdamW : public RuleOptimizer<kernels::AdamWStep> {
 public:
  using Config = AdamWConfig;
  /// Throws: Error naming a field of the config that violates its rule
  explicit AdamW(std::vector<Parameter> parameters, const AdamWConfig& config = {})
      : RuleOptimizer("adamw", std::move(parameters), {"first_moment", "second_moment"}, fields_of(config)),
        config_(config),
        steps_(parameters_.size(), 0) {
    if (!(config.epsilon >= 1e-37))  // f32 rounds much smaller ones to 0
      throw Error(format("[adamw] epsilon must be at least 1e-37; got {}", config.epsilon));
  }
  void visit_state(OptimizerVisitor& visitor) override {
    RuleOptimizer::visit_state(visitor);
    for (std::size_t i = 0; i < steps_.size(); ++i) visitor.counter(state_name("steps", i), steps_[i]);
  }

 private:
  void gather(double learning_rate, MultiTensorList& table) override {
    next_steps_ = steps_;
    RuleOptimizer::gather(learning_rate, table);
  }
  kernels::AdamWStep settings(std::size_t parameter, double learning_rate) override {
    const auto count = static_cast<double>(++next_steps_[parameter]);
    const double decay = has_rank_two(parameters_[parameter]) ? config_.weight_decay : 0;
    return {learning_rate,
            config_.beta1,
            config_.beta2,
            config_.epsilon,
            decay,
            1 - std::pow(config_.beta1, count),
            1 - std::pow(config_.beta2, count)};
  }
  void count_step() override { steps_ = next_steps_; }

  AdamWConfig config_;
  std::vector<std::int64_t> steps_, next_steps_;  // before and after the step that was gathered
};

}  // namespace tapeformer
