#pragma once

#include <tapeformer/examples/shared/command_line.h>

#include <string>
#include <vector>

namespace tapeformer {

/// Reads the arguments of a program, without its name; false if they ask for help.
inline bool read(const CommandLine& line, const std::vector<std::string>& arguments) {
  std::vector<const char*> all = {"program"};
  for (const std::string& argument : arguments) all.push_back(argument.c_str());
  return line.read(static_cast<int>(all.size()), all.data());
}

}  // namespace tapeformer
