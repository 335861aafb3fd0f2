#pragma once

#include <tapeformer/examples/train/control.h>
#include <tapeformer/examples/train/task.h>

#include <functional>
#include <memory>

namespace tapeformer {

/// Makes a task: a new one, or, from the state of a checkpoint, the one that saved it.
using MakeTask = std::function<std::unique_ptr<TrainingTask>(const Json* checkpoint, Progress& progress)>;

/// A new run in `folder`; returns the exit code. Throws: DataError if the folder holds one already
int start_training(const RunFolder& folder, const TrainingControl& control, const MakeTask& make_task);
/// Goes on from the folder's checkpoint; where the control names another number of steps, `make_task` finds
/// it in the checkpoint's options. Throws: CheckpointError; Error if the run has come to that step already
int resume_training(const RunFolder& folder, const TrainingControl& control, const MakeTask& make_task);

}  // namespace tapeformer
