#pragma once

#include <tapeformer/examples/shared/command_line.h>

namespace tapeformer {

/// Adds the commands `report` and `compare`. Once the command line has been read, the result runs the chosen
/// one and returns the exit code; nothing for another command.
/// Throws: DataError or CheckpointError naming a folder without a sound run
std::function<std::optional<int>()> add_report_commands(const CommandLine& line);

}  // namespace tapeformer
