#pragma once

#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/train/start.h>

namespace tapeformer {

/// Starts or resumes a run in its folder; returns the exit code.
using TrainIn = std::function<int(const RunFolder& folder, const TrainingControl& control)>;

/// The command `train` of a program, to which the options of the model and its data are to be added.
class TrainCommand {
 public:
  /// Adds the command to the line, whose options refer to this object. It joins the processes that a launcher
  /// has started, if any, locks the run folder, and starts or resumes the run in it. `options` are the values
  /// given to the command.
  TrainCommand(CommandLine& line, int argc, const char* const* argv, const TrainingOptions& options,
               TrainIn start_in, TrainIn resume_in);
  TrainCommand(const TrainCommand&) = delete;
  /// For options of the program's own.
  const Command& command() const { return command_; }
  /// The words of a command that may be given again on resuming: all but the options that are the run's own.
  std::vector<std::string> for_resuming(const std::vector<std::string>& words) const;

 private:
  int execute() const;

  Command command_;
  const TrainingOptions& options_;
  const TrainIn start_in_, resume_in_;
  std::string run_;
  bool resume_ = false, tensorboard_ = false;
  TrainingControl control_;
};

}  // namespace tapeformer
