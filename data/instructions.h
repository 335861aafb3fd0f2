#pragma once

#include <string>
#include <vector>

namespace tapeformer {

/// An example of what a model is to answer.
struct Instruction {
  std::string prompt;  ///< what the model is given
  std::string answer;  ///< what it is to write
};

/// Reads files of one JSON object per line: {"prompt": "...", "answer": "..."}. "completion" is another name
/// for "answer"; other keys and empty lines are ignored.
/// Throws:  DataError naming file and line of what is not such an object, or a file that cannot be read
std::vector<Instruction> read_instructions(const std::vector<std::string>& paths);

}  // namespace tapeformer
