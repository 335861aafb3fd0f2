#pragma once

#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/examples/shared/training_options.h>
#include <tapeformer/nn/module.h>
#include <tapeformer/optim/moving_average.h>

#include <functional>
#include <memory>

namespace tapeformer {

/// Turns gradients into new weights: the optimizer, the sums over ranks, and the average of the weights.
class Learner {
 public:
  Learner(Module& model, const TrainingOptions& options, const std::shared_ptr<Communicator>& ranks,
          bool shard_optimizer);

  /// Updates the weights by the gradients times `share`. Returns their norm, f64 [1]; nothing changes where
  /// that is not finite.
  Tensor update(double learning_rate, double share);
  void clear_gradients() { optimizer_->clear_gradients(); }
  DType gradient_type() const { return wide(optimizer_->parameters().front().value().dtype()); }

  /// Runs `use` while the model has the weights to validate and to keep. Collective.
  void with_evaluation_weights(const std::function<void()>& use);
  /// Runs `use` while every rank has whole parameters, to save or load them. Collective.
  void with_whole_values(const std::function<void()>& use) { parallel_.with_whole_values(use); }
  /// Shows what a checkpoint holds besides the model. Collective.
  void visit_state(OptimizerVisitor& visitor);
  /// Bytes of that on one rank, as they were at the beginning.
  Index state_bytes() const { return state_bytes_; }

  /// Sums the ranks' gradients, from the backward pass of `tape` on, until finish_sums().
  void sum_during(Tape& tape) { parallel_.sum_during(tape); }
  void finish_sums() { parallel_.finish(); }

 private:
  double clip_;
  DataParallel parallel_;
  const std::unique_ptr<Optimizer> optimizer_;
  const std::unique_ptr<MovingAverage> average_;  // none unless options.average_decay asks for it
  Index state_bytes_ = 0;
};

}  // namespace tapeformer
