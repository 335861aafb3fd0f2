#pragma once

#include <tapeformer/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

/// Several optimizers with separate parameters that step as one: clipped_step() limits the norm of all
/// gradients together.
class OptimizerGroups : public Optimizer {
 public:
  /// An optimizer, and the factor of its learning rate.
  struct Group {
    std::unique_ptr<Optimizer> optimizer;  ///< of the group's parameters
    double rate = 1;                       ///< multiplies the learning rate
  };
  /// Throws: Error if two groups have a parameter in common, DTypeError unless all are f32 or all f64
  OptimizerGroups(std::string algorithm, std::vector<Group> groups);

  void visit_state(OptimizerVisitor& visitor) override;
  void set_shards(const DataParallel& ranks) override;

 private:
  void gather(double learning_rate, MultiTensorList& table) override;
  void update(const kernels::StepTensors& tensors, const Tensor& factor) override;
  void count_step() override;

  std::vector<Group> groups_;
};

}  // namespace tapeformer
