#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/optimizer.h>

#include <functional>
#include <vector>

namespace tapeformer {

struct LionConfig {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.1;
  std::function<bool(const Parameter&)> decays = has_rank_two;  ///< asked once, at construction

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
class Lion : public Optimizer {
 public:
  using Config = LionConfig;
  /// Throws: Error naming a field of the config that does not keep its rule
  explicit Lion(std::vector<Parameter> parameters, const LionConfig& config = {});
  void visit_state(OptimizerVisitor& visitor) override { visit_tensors(visitor, "moment", moments_); }

 private:
  void gather(double learning_rate, MultiTensorList& table) override;
  void update(const kernels::StepTensors& tensors, const Tensor& factor) override;

  LionConfig config_;
  std::vector<Tensor> moments_;
  std::vector<bool> decays_;         // which parameters
  kernels::LionStep settings_[2]{};  // of this step, without decay and with it
};

}  // namespace tapeformer
