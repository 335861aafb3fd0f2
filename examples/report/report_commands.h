#pragma once

#include <tapeformer/examples/shared/command_line.h>

#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

/// The commands `report` and `compare` of a program that trains.
class ReportCommands {
 public:
  explicit ReportCommands(const CommandLine& line);
  /// Does what was chosen, and returns the exit code; nothing if it was another command.
  /// Throws: DataError or CheckpointError naming a folder that holds no sound training
  std::optional<int> execute() const;

 private:
  std::vector<std::string> runs_;
  std::string output_;
  bool json_ = false;
  Command report_, compare_;
};

}  // namespace tapeformer
