#pragma once

#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/train/task.h>

namespace tapeformer {

/// How a run is carried out. Nothing here changes what it computes, except last bits by threads and device,
/// and the rounding of the precision.
struct TrainingControl {
  double max_minutes = 0;  ///< time limit, after which it saves and stops; 0 for none
  Index steps = 0;         ///< on resuming: train up to this step, not to the run's own last one; 0: its own
  bool summary = false;    ///< only print the model's summary
  Index profile = 0;       ///< steps whose operations are timed; 0 for none
  bool dry_run = false;    ///< only say what memory and time the run would take
  bool plot = false;       ///< draw the losses on a terminal
  std::string command;     ///< the command line, for the report
  ComputeOptions compute = {};
  std::function<bool()> stops = interrupted;                   ///< asked before every batch
  std::shared_ptr<Communicator> ranks = communicator_alone();  ///< the processes that train together
  bool shard_optimizer = false;    ///< each of them keeps its share of the optimizer's state
  double collective_minutes = 10;  ///< the longest that they wait for each other; 0 for no limit
};

/// Makes a task: a new one, or, from the state of a checkpoint, the one that saved it.
using MakeTask = std::function<std::unique_ptr<TrainingTask>(const Json* checkpoint, Progress& progress)>;

/// A new run in `folder`; returns the exit code. Throws: DataError if the folder holds one already
int start_training(const RunFolder& folder, const TrainingControl& control, const MakeTask& make_task);
/// Goes on from the folder's checkpoint; where the control names another number of steps, `make_task` finds
/// it in the checkpoint's options. Throws: CheckpointError; Error if the run has come to that step already
int resume_training(const RunFolder& folder, const TrainingControl& control, const MakeTask& make_task);

}  // namespace tapeformer
