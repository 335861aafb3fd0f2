#pragma once

#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/examples/shared/phase_clock.h>
#include <tapeformer/examples/train/start.h>
#include <tapeformer/optim/moving_average.h>

namespace tapeformer {

/// State that the parts of a run share: what it trains, where and how, how far it is, and what turns
/// gradients into new weights.
struct Session {
  /// `clock` has measured what came before; the model computes as `compute` says already.
  Session(RunFolder run_folder, const TrainingControl& how, TrainingTask& what, Progress& shown,
          const PhaseClock& since = {}, const Compute& on = {default_device()});

  bool is_alone() const { return ranks.size() == 1; }
  /// The number of batches in `steps` steps of the run.
  Index batches(Index steps) const { return steps * options.accumulate; }
  Index batches() const { return batches(step); }
  /// Whether the time limit is reached, and whether the run was asked to stop. Several ranks agree on both in
  /// sum_over_ranks(), at the end of each step.
  bool is_late() const { return is_alone() ? is_time_up() : all_late_; }
  bool stops() const { return is_alone() ? control.stops() : all_stop_; }
  /// Takes over how many steps the task has now, which changes the schedule.
  void take_steps();
  /// The state of the model's random draws.
  std::vector<std::uint64_t> draws() const;
  void set_draws(const std::vector<std::uint64_t>& values) const;

  /// Waits until the gradients are the sums over all ranks; returns the sum of the tokens that they counted.
  double sum_over_ranks(Index counted);
  /// Updates the weights by the gradients times `share`. Returns their norm, f64 [1]; nothing changes where
  /// that is not finite.
  Tensor update(double learning_rate, double share);
  /// Runs `use` while the model has the weights to validate and to keep. Collective.
  void with_evaluation_weights(const std::function<void()>& use);
  /// The command line that goes on with the run.
  std::string resume_command() const;
  /// The message of an error that ends the run. Throws: CheckpointError if another process has taken the
  /// folder
  std::string with_remedy(const Error& error) const;
  /// Shows what a checkpoint holds besides the model. Collective.
  void visit_state(OptimizerVisitor& visitor);

  RunFolder folder;
  TrainingControl control;
  TrainingTask& task;
  Progress& progress;
  PhaseClock clock;
  Compute compute;
  TrainingOptions options;
  Communicator& ranks;
  DataParallel parallel;
  const std::unique_ptr<Optimizer> optimizer;
  const std::unique_ptr<MovingAverage> average;  ///< none unless options.average_decay asks for it
  Index state_bytes = 0;  ///< of optimizer and average on one rank, as they were at the beginning
  Schedule schedule;
  double started = now_seconds();
  Index first_step = 0;          ///< of this session, from 0
  Index step = 0;                ///< steps done
  Index checkpointed_step = -1;  ///< those of the last checkpoint; -1 before the first

 private:
  bool is_time_up() const;

  bool all_stop_ = false, all_late_ = false;  // what the ranks agreed on in the last step
};

}  // namespace tapeformer
