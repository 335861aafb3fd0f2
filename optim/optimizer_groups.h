#pragma once

#include <tapeformer/optim/optimizer.h>

#include <memory>
#include <string>
#include <utility>
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
  OptimizerGroups(std::string algorithm, std::vector<Group> groups)
      : Optimizer(std::move(algorithm), parameters_of(groups)), groups_(std::move(groups)) {}

  void visit_state(OptimizerVisitor& visitor) override {
    count_last_step();
    for (const Group& group : groups_) group.optimizer->visit_state(visitor);
  }
  void set_shards(const DataParallel& ranks) override {
    Optimizer::set_shards(ranks);
    for (const Group& group : groups_) group.optimizer->set_shards(ranks);
  }

 private:
  static std::vector<Parameter> parameters_of(const std::vector<Group>& groups) {
    std::vector<Parameter> all;
    for (const Group& group : groups)
      all.insert(all.end(), group.optimizer->parameters().begin(), group.optimizer->parameters().end());
    return all;
  }
  void gather(double learning_rate, MultiTensorList& table) override {
    for (const Group& group : groups_) group.optimizer->gather(learning_rate * group.rate);
    for (const Parameter& parameter : parameters_)
      if (parameter.gradient().defined()) table.add(parameter, Tensor(), Tensor(), 0);
  }
  void update(const kernels::StepTensors&, const Tensor& factor) override {
    for (const Group& group : groups_) {
      Optimizer& own = *group.optimizer;
      if (!own.table_.empty()) own.update(own.table_.tensors(), factor);
    }
  }
  void count_step() override {
    for (const Group& group : groups_) group.optimizer->count_step();
  }

  std::vector<Group> groups_;
};

}  // namespace tapeformer
