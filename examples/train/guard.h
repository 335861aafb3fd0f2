#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/train/passes.h>

namespace tapeformer {

/// Stops a run at a step whose loss or gradient is not finite, or whose loss is far above the last ones.
struct BadStep : Error {
  using Error::Error;
};

/// A queued step, whose loss and gradient norm are read later.
struct QueuedStep {
  Index number = 0;  // from 1
  std::vector<Pass> passes;
  AsyncReadback norm;
  std::optional<double> loss;  // mean over all ranks, once it was read
  double counted = 0;          // tokens of all ranks in that mean
  double mean_before = 0;      // mean of the earlier losses, once the guard has seen this one
  std::optional<bool> is_far;  // whether the loss is far above mean_before
  bool is_left_out = false;    // whether the update was left out because the loss is far above
};

/// Finds losses far above earlier ones, by the mean and the variance of about the last 50. The first 50 are
/// never far above. A loss that is far above enters both as the bound that it exceeds, so that a higher level
/// becomes usual after a while.
class LossWatch {
 public:
  /// Adds a finite `loss`; true if it is more than `deviations` standard deviations above the mean, never if
  /// `deviations` is 0.
  bool is_far_above(double loss, double deviations);
  double mean() const { return mean_; }

  void describe(const FieldVisitor& field) {
    field("losses", losses_);
    field("mean", mean_);
    field("variance", variance_);
  }

 private:
  Index losses_ = 0;
  double mean_ = 0, variance_ = 0;
};

/// Watches the losses and gradients of steps, and handles bad steps by options.non_finite and loss_spike.
class Guard {
 public:
  Guard(Session& session, Passes& passes) : session_(session), passes_(passes) {}

  /// Whether to leave out the update of a step whose loss was read.
  bool leaves_out(QueuedStep& step);
  /// False if the step's loss does not count in the log's mean. Throws: BadStep if the run must stop
  bool is_good(QueuedStep& step);
  /// Throws: BadStep unless `value`, which was computed from the present weights, is finite
  void require_finite(double value, const char* name) const;
  Index bad_steps() const { return bad_steps_; }

  Json state() const;
  void load(const Json& state);

 private:
  bool is_far_above(QueuedStep& step);
  void handle_bad_step(const std::string& policy, Index step, const std::string& what, bool is_made);
  BadStep bad_step(Index number, const std::string& what) const;

  Session& session_;
  Passes& passes_;
  LossWatch loss_watch_;
  Index bad_steps_ = 0, bad_in_a_row_ = 0;
};

/// Names parameters that the first steps do not train, because gradients are missing or exactly zero.
class GradientWatch {
 public:
  /// Checks the gradients of a step before its update. Collective.
  void see(Session& session);

 private:
  /// Two: parameters before matrices of zeros (--zero-init) get their first gradient in the second step.
  static constexpr Index kSteps = 2;
  Index steps_ = 0;
  std::vector<double> with_gradient_;  // for each parameter, on how many ranks and steps it was not zero
};

}  // namespace tapeformer
