#pragma once

namespace CLI {
class App;
}

namespace tapeformer {

/// Reads the command line; false if it asked for help or the version, which are printed.
/// Throws: Error with one line that says what is wrong, and for an unknown option which one may be meant
bool read_command_line(CLI::App& app, int argc, const char* const* argv);

}  // namespace tapeformer
