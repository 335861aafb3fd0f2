#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/optim/optimizer.h>

#include <functional>
#include <vector>

namespace tapeformer {

/// Matrices and tables decay; biases and the gains of normalisations do not.
inline bool has_rank_two(const Parameter& parameter) { return parameter.value().rank() >= 2; }

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;  ///< no option: the models' norms have --epsilon
  double weight_decay = 0.01;
  std::function<bool(const Parameter&)> decays = has_rank_two;  ///< asked once, at construction

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
class AdamW : public Optimizer {
 public:
  using Config = AdamWConfig;
  /// Throws: Error naming a field of the config that does not keep its rule
  explicit AdamW(std::vector<Parameter> parameters, const AdamWConfig& config = {});
  void visit_state(OptimizerVisitor& visitor) override;

 private:
  void gather(double learning_rate, MultiTensorList& table) override;
  void update(const kernels::StepTensors& tensors, const Tensor& factor) override;
  void count_step() override { steps_ = next_steps_; }

  AdamWConfig config_;
  std::vector<Tensor> first_moments_, second_moments_;
  std::vector<std::int64_t> steps_, next_steps_;  // after the step that was gathered
  std::vector<double> decays_;                    // weight decay of each parameter
  std::vector<kernels::AdamWStep> settings_;      // of this step: one for each decay and count of steps
};

}  // namespace tapeformer
