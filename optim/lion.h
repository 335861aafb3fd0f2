#pragma once

#include <tapeformer/optim/adamw.h>

#include <utility>
#include <vector>

namespace tapeformer {

struct LionConfig {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.1;

  void describe(const FieldVisitor& field) {
    field("weight_decay", weight_decay, "decay of matrices", kNotNegative);
    field("beta1", beta1, "weight of the moment in the direction of a step", kBelowOne);
    field("beta2", beta2, "decay of the moment", kBelowOne);
  }
};

/// The sign of a moment, with weight decay decoupled from the gradient. Every element moves by the learning
/// rate, which therefore is 3 to 10 times smaller than AdamW's, and the decay as many times larger.
/// Math:    x = x (1 - lr decay) - lr sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g
/// Source:  Chen et al. 2023, arXiv:2302.06675, algorithm 2
class Lion : public RuleOptimizer<kernels::LionStep> {
 public:
  using Config = LionConfig;
  /// Throws: Error naming a field of the config that violates its rule
  explicit Lion(std::vector<Parameter> parameters, const LionConfig& config = {})
      : RuleOptimizer("lion", std::move(parameters), {"moment"}, fields_of(config)), config_(config) {}

 private:
  kernels::LionStep settings(std::size_t parameter, double learning_rate) override {
    const double decay = has_rank_two(parameters_[parameter]) ? config_.weight_decay : 0;
    return {learning_rate, config_.beta1, config_.beta2, decay};
  }

  LionConfig config_;
};

}  // namespace tapeformer
