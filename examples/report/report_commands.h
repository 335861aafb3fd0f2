#pragma once

#include <tapeformer/examples/shared/command_line.h>

namespace tapeformer {

/// Adds the commands `report` and `compare`, which throw DataError or CheckpointError naming a folder without
/// a sound run.
void add_report_commands(CommandLine& line);

}  // namespace tapeformer
