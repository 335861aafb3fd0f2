#pragma once

#include <tapeformer/examples/shared/training_profile.h>
#include <tapeformer/examples/train/checkpointer.h>
#include <tapeformer/examples/train/time_budget.h>

namespace tapeformer {

/// The loop that trains in a run folder; its parts do what is due between the steps. A resumed run computes
/// bit for bit what it would have without the break: a step that was stopped between its batches is computed
/// again.
class TrainingRun {
 public:
  /// A number of steps that was chosen by a plan is corrected once.
  explicit TrainingRun(Session& session, TimePlan plan = {});

  /// Makes the folder. Throws: DataError
  void start();
  /// Restores the run from its folder; `checkpoint` is the state in the folder's checkpoint. If a number of
  /// steps was asked for, which the task's options then hold, `steps_before` is the former one; else it is 0.
  /// Throws: CheckpointError
  void resume(const Json& checkpoint, Index steps_before = 0);
  /// Runs to the end, to a limit or to Ctrl-C; returns the exit code.
  /// Throws: BadStep if a bad step stops it; DataError or CheckpointError if a file cannot be read or
  ///         written, which ends the run rather than to let it go on unsaved; the last checkpoint stays
  int run();

 private:
  int train();
  bool train_step();
  double sum_over_ranks(Index counted);
  int stop(bool late);
  int finish();

  Session& session_;
  Passes passes_;
  Guard guard_;
  GradientWatch gradient_watch_;
  TrainingLog log_;
  RunReport report_;
  Validator validator_;
  Checkpointer checkpointer_;
  TimeBudget budget_;
  TrainingProfile profile_;
  bool all_stop_ = false, all_late_ = false;  // what the ranks agreed on in the last step
};

}  // namespace tapeformer
