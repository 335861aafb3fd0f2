#pragma once

#include <tapeformer/examples/train/checkpointer.h>
#include <tapeformer/examples/train/time_budget.h>

namespace tapeformer {

/// The loop that trains in a run folder; its parts do the work between the steps. A resumed run has the same
/// bits as one that was never interrupted: a step that was stopped between its batches is computed again.
class TrainingRun {
 public:
  /// With a plan, the number of steps is corrected at most once.
  explicit TrainingRun(Session& session, const TimePlan& plan = {});

  /// Runs to the end, the time limit or Ctrl-C; returns the exit code. `checkpointer` must have started or
  /// resumed the run.
  /// Throws: BadStep if a bad step stops it; DataError or CheckpointError if a file cannot be read or
  ///         written: the run does not continue unsaved, and the last checkpoint stays
  int run();

 private:
  int train();
  bool train_step();
  int stop(bool late);
  int finish();

  Session& session_;
  Passes passes_;
  Guard guard_;
  GradientWatch gradient_watch_;
  TrainingLog log_;
  RunReport report_;
  Validator validator_;
  TrainingProfile profile_;
  TimeBudget budget_;

 public:
  Checkpointer checkpointer;
};

}  // namespace tapeformer
