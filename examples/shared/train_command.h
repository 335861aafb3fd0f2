#pragma once

#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/train/start.h>

namespace tapeformer {

/// Starts or resumes a run in its folder; returns the exit code.
using TrainIn = std::function<int(const RunFolder& folder, const TrainingControl& control)>;

/// The command `train` of a program, to which the options of the model and its data are to be added.
class TrainCommand {
 public:
  /// Adds the command to the line, whose options refer to this object.
  TrainCommand(const CommandLine& line, int argc, const char* const* argv);
  TrainCommand(const TrainCommand&) = delete;
  TrainCommand& operator=(const TrainCommand&) = delete;
  /// For options of the program's own.
  const Command& command() const { return command_; }
  /// Joins the processes that a launcher has started, if any. Locks the run folder, and starts or resumes the
  /// run in it; returns the exit code. `groups` are those of the options that a resumed run keeps, and
  /// `options` the values given to the command.
  int execute(std::initializer_list<const char*> groups, const TrainingOptions& options,
              const TrainIn& start_in, const TrainIn& resume_in) const;

 private:
  Command command_;
  std::string run_;
  bool resume_ = false, tensorboard_ = false;
  TrainingControl control_;
};

}  // namespace tapeformer
