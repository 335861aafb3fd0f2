#pragma once

#include <string>
#include <vector>

namespace tapeformer {

/// An example of a prompt and its answer.
struct Instruction {
  std::string prompt;  ///< the model's input
  std::string answer;  ///< the output it is trained to write
};

/// Reads files of one JSON object per line: {"prompt": "...", "answer": "..."}. "completion" is another name
/// for "answer"; other keys and empty lines are ignored.
/// Throws:  DataError naming file and line of anything else, a file that cannot be read, or files with none
std::vector<Instruction> read_instructions(const std::vector<std::string>& paths);

}  // namespace tapeformer
