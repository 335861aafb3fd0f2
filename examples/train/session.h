#pragma once

#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/examples/shared/phase_clock.h>
#include <tapeformer/examples/train/start.h>
#include <tapeformer/optim/moving_average.h>

namespace tapeformer {

/// State that the parts of a run share: the task, the folder, the options, the progress, and the way from
/// gradients to new weights.
struct Session {
  /// `since` has measured the start; the model has already been set up by `on`.
  Session(RunFolder run_folder, const TrainingControl& how, TrainingTask& what, Progress& shown,
          const PhaseClock& since = {}, const Compute& on = {default_device()});

  bool is_alone() const { return ranks.size() == 1; }
  /// The number of batches in `steps` steps of the run.
  Index batches(Index steps) const { return steps * options.accumulate; }
  Index batches() const { return batches(step); }
  /// Whether the time limit is reached, and whether the run must stop. Several ranks agree on both in
  /// sum_over_ranks(), once per step.
  bool is_late() const { return is_alone() ? is_time_up() : all_late_; }
  bool stops() const { return is_alone() ? control.stops() : all_stop_; }
  /// The learning rate of a step, whose number is counted from 0.
  double learning_rate(Index number) const { return Schedule(options.schedule_config())(number); }
  /// The state of the model's random draws.
  std::vector<std::uint64_t> draws() const;
  void set_draws(const std::vector<std::uint64_t>& values) const;

  /// Waits until the gradients are the sums over all ranks; returns the sum of their counted tokens.
  double sum_over_ranks(Index counted);
  /// Updates the weights by the gradients times `share`. Returns the norm of these products, f64 [1]; nothing
  /// changes if it is not finite.
  Tensor update(double learning_rate, double share);
  /// Runs `use` while the model has the weights to validate and to keep. Collective.
  void with_evaluation_weights(const std::function<void()>& use);
  /// The command line that resumes the run.
  std::string resume_command() const;
  /// The message of an error that ends the run. Throws: DataError if the folder or its lock was moved or
  /// removed
  std::string with_remedy(const Error& error) const;
  /// Visits the state that a checkpoint has besides the model. Collective.
  void visit_state(OptimizerVisitor& visitor);

  RunFolder folder;
  TrainingControl control;
  TrainingTask& task;
  Progress& progress;
  PhaseClock clock;
  Compute compute;
  const TrainingOptions& options;  ///< the task's
  Communicator& ranks;
  DataParallel parallel;
  const std::unique_ptr<Optimizer> optimizer;
  const std::unique_ptr<MovingAverage> average;  ///< null if options.average_decay is 0
  Index state_bytes = 0;                         ///< of optimizer and average on one rank, at the beginning
  double started = now_seconds();
  Index first_step = 0;          ///< of this session, from 0
  Index step = 0;                ///< steps done
  Index checkpointed_step = -1;  ///< steps at the last checkpoint; -1 before the first

 private:
  bool is_time_up() const;

  bool all_stop_ = false, all_late_ = false;  // the ranks' agreement in the last step
};

}  // namespace tapeformer
