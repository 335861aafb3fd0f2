#pragma once

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

  /// Once `checkpointer` has started or resumed it: runs to the end, to a limit or to Ctrl-C; returns the
  /// exit code.
  /// Throws: BadStep if a bad step stops it; DataError or CheckpointError if a file cannot be read or
  ///         written, which ends the run rather than to let it go on unsaved; the last checkpoint stays
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
