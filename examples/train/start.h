#pragma once

#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/train/task.h>

namespace tapeformer {

/// The conditions of a run. They do not change its results, except for last bits, which depend on threads
/// and device, and the rounding of the precision.
struct TrainingControl {
  double max_minutes = 0;  ///< time limit, after which the run saves and stops; 0 for none
  Index steps = 0;         ///< on resuming: the new last step; 0 for the run's own
  bool summary = false;    ///< only print the model's summary
  Index profile = 0;       ///< steps whose operations are timed; 0 for none
  bool dry_run = false;    ///< only report the memory and time of the run
  bool plot = false;       ///< draw the losses on a terminal
  std::string command;     ///< the command line, for the report
  ComputeOptions compute = {};
  std::function<bool()> stops = interrupted;                   ///< asked before every batch
  std::shared_ptr<Communicator> ranks = communicator_alone();  ///< the processes that train together
  bool shard_optimizer = false;    ///< each rank keeps its share of the optimizer's state
  double collective_minutes = 10;  ///< the longest wait of ranks for each other; 0 for no limit
};

/// Makes a task: a new one, or, from the state of a checkpoint, the one that saved it.
using MakeTask = std::function<std::unique_ptr<TrainingTask>(const Json* checkpoint, Progress& progress)>;

/// Starts a new run in `folder`; returns the exit code. Throws: DataError if the folder already has one
int start_training(const RunFolder& folder, TrainingControl control, const MakeTask& make_task);
/// Resumes from the folder's checkpoint; `make_task` finds the control's number of steps, if there is one, in
/// the checkpoint's options. Throws: CheckpointError; Error if the run has already reached that step
int resume_training(const RunFolder& folder, TrainingControl control, const MakeTask& make_task);

}  // namespace tapeformer
