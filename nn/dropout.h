#pragma once

#include <tapeformer/autograd/ops/dropout.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

struct DropoutConfig {
  double probability = 0;  ///< of dropping an element
};

/// In training, drops elements at random and scales the rest by 1 / (1 - probability); otherwise the
/// identity. Each layer draws from its own stream, and each call in training from the next step of it.
/// Source:  Srivastava et al. 2014
class Dropout : public Module {
 public:
  Dropout(const DropoutConfig& config, Generator& random);

  Tensor operator()(const Tensor& x) const;
  void visit(ParameterVisitor& visitor) override;

  /// For operations that drop inside: the probability in force now, and the key of the next draw.
  double active_probability() const { return training_ ? probability_ : 0; }
  /// Which elements the next call drops; moves the count of masks on.
  DropoutKey next_key() const;

 private:
  double probability_;
  bool training_ = true;
  mutable DropoutKey key_;  // step: draws so far
};

/// Lets each of the processes that train a model together drop other elements; rank 0 drops what a process
/// alone does. A checkpoint of rank 0 serves all ranks: what loads one must call this again.
void separate_draws(Module& model, int rank);

}  // namespace tapeformer
