#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/optim/optimizer.h>

#include <string>
#include <vector>

namespace tapeformer {

/// An optimizer that updates each parameter by kernels::StepRule<T, Step>, with up to two tensors of state.
template <class Step>
class RuleOptimizer : public Optimizer {
 public:
  /// Shows the states of each parameter by their names.
  void visit_state(OptimizerVisitor& visitor) override;

 protected:
  /// `states` are the names of the state tensors. Throws: Error naming a field that violates its rule
  RuleOptimizer(std::string algorithm, std::vector<Parameter> parameters,
                const std::vector<const char*>& states, const FieldList& fields);
  /// The settings of a parameter with a gradient, in the step that is gathered.
  virtual Step settings(std::size_t parameter, double learning_rate) = 0;
  /// Adds each parameter that has a gradient, with its states and its settings.
  void gather(double learning_rate, MultiTensorList& table) override;

 private:
  void update(const kernels::StepTensors& tensors, const Tensor& factor) override;

  std::vector<const char*> names_;
  std::vector<std::vector<Tensor>> states_;
  std::vector<Step> settings_;  // of this step, each once
};

}  // namespace tapeformer
