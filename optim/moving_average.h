#pragma once

#include <tapeformer/optim/optimizer.h>

#include <vector>

namespace tapeformer {

/// The exponential moving average of a model's weights over a run, which is often better than the last
/// weights. It is kept next to them, in their type and on their device:
///   MovingAverage average(model.parameters(), 0.999);
///   ...
///   const Tensor norm = optimizer.clipped_step(learning_rate, 1, max_norm);
///   average.include_weights(norm);
///   ...
///   average.exchange_weights();  // to validate and to save
///   average.exchange_weights();  // to train on
/// Math:    average = average + (1 - d) (x - average), with d = min(decay, n / (n + 9)) in the n-th call,
///          counted from 0: the first average is the weights
/// Source:  Polyak and Juditsky 1992, "Acceleration of stochastic approximation by averaging"; the rise of
///          the decay is that of TensorFlow's ExponentialMovingAverage, (1 + u) / (10 + u) with u = n - 1
class MovingAverage : private Optimizer {
 public:
  /// Throws: Error unless `decay` is in [0, 1)
  MovingAverage(std::vector<Parameter> parameters, double decay);

  /// To be called after each step of the optimizer. If `norm`, that of the step's gradients as f64 [1] on the
  /// weights' device, is not finite, the average and its count stay as if this step had not happened.
  /// Throws: DeviceError for a norm on another device
  void include_weights(const Tensor& norm = {});
  /// Swaps weights and average, to evaluate and to save; the next call restores the weights, to the same
  /// bits. No step may come between. Returns whether anything has changed: nothing does before the first
  /// include_weights(). If ranks divide the work, DataParallel::gather_values() must follow.
  bool exchange_weights();
  /// To be saved and restored with the optimizer's state.
  void visit_state(OptimizerVisitor& visitor) override;
  using Optimizer::set_shards;

 private:
  void gather(double weight, MultiTensorList& table) override;
  void update(const kernels::StepTensors& tensors, const Tensor& norm) override;
  void count_step() override { ++included_; }

  double decay_, weight_ = 1;
  std::vector<Tensor> averages_;
  std::int64_t included_ = 0;
};

}  // namespace tapeformer
