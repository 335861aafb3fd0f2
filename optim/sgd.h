#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/optim/optimizer.h>

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
class Sgd : public Optimizer {
 public:
  using Config = SgdConfig;
  /// Throws: Error naming a field of the config that does not keep its rule
  explicit Sgd(std::vector<Parameter> parameters, const SgdConfig& config = {});
  void visit_state(OptimizerVisitor& visitor) override { visit_tensors(visitor, "velocity", velocities_); }

 private:
  void gather(double learning_rate, MultiTensorList& table) override;
  void update(const kernels::StepTensors& tensors, const Tensor& factor) override;

  SgdConfig config_;
  std::vector<Tensor> velocities_;  // empty without momentum
  kernels::SgdStep step_{};         // at the rate that was gathered
};

}  // namespace tapeformer
