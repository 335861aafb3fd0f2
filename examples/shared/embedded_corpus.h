#pragma once

#include <string_view>

namespace tapeformer {

/// The sources of the library and the programs as they were when the program was built, in the order of their
/// paths, each after a line `=== path ===`: a text to train on wherever the program runs.
std::string_view embedded_corpus();

}  // namespace tapeformer
