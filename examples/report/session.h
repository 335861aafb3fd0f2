#pragma once

#include <tapeformer/examples/shared/run_folder.h>

#include <string>

namespace tapeformer {

/// The session, for a report: when it began, this version, its compiler, the processor and the machine.
Json session_json(const std::string& command);

/// The command line as a shell would take it again.
std::string command_text(int argc, const char* const* argv);

}  // namespace tapeformer
