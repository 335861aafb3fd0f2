#pragma once

#include <tapeformer/examples/train/start.h>

namespace tapeformer {

/// Starts or resumes a run in its folder; returns the exit code.
using TrainIn = std::function<int(const RunFolder& folder, const TrainingControl& control)>;

/// The command `train` of a program, without the options of the model and its data.
struct TrainCommand {
  std::string run;
  bool resume = false, tensorboard = false;
  TrainingControl control;

  void add_to(const Command& command);
  /// Joins the processes that a launcher has started, if any. Locks the run folder, and starts or resumes the
  /// run in it; returns the exit code. `groups` are those of the options that a resumed run keeps, and
  /// `options` the values given to `command`.
  int execute(const Command& command, std::initializer_list<const char*> groups,
              const TrainingOptions& options, const TrainIn& start_in, const TrainIn& resume_in) const;
};

}  // namespace tapeformer
