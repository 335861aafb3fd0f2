#pragma once

#include <tapeformer/examples/shared/command_line.h>

namespace tapeformer {

/// Adds the commands `report` and `compare` of a program that trains. Once the command line was read, the
/// result does what was chosen, and returns the exit code; nothing if it was another command.
/// Throws: DataError or CheckpointError naming a folder that holds no sound run
std::function<std::optional<int>()> add_report_commands(const CommandLine& line);

}  // namespace tapeformer
