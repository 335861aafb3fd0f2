#pragma once

#include <tapeformer/autograd/ops/dropout.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

struct DropoutConfig {
  double probability = 0;  ///< of dropping an element
};

/// In training, drops elements at random and scales the rest by 1 / (1 - probability); otherwise the
/// identity. Each layer draws from its own stream, and each call in training takes the stream's next step.
/// Source:  Srivastava et al. 2014
class Dropout : public Module {
 public:
  Dropout(const DropoutConfig& config, Generator& random);

  Tensor operator()(const Tensor& x) const;
  void visit(ParameterVisitor& visitor) override;

  /// For operations that drop elements themselves: the probability, 0 outside training, and next_key().
  double active_probability() const { return training_ ? probability_ : 0; }
  /// The key of the next mask; counts it as drawn.
  DropoutKey next_key() const;

 private:
  double probability_;
  bool training_ = true;
  mutable DropoutKey key_;  // step: draws so far
};

/// Gives each of the processes that train a model together its own masks; those of rank 0 are a single
/// process's. Checkpoints hold rank 0's counts, so call this again after loading one.
void separate_draws(Module& model, int rank);

}  // namespace tapeformer
