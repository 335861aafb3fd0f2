#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/tests/reference/support.h>

#include <string>
#include <vector>

namespace tapeformer {

/// Reads the arguments of a program, without its name; false if they ask for help.
inline bool read(const CommandLine& line, const std::vector<std::string>& arguments) {
  std::vector<const char*> all = {"program"};
  for (const std::string& argument : arguments) all.push_back(argument.c_str());
  return line.read(static_cast<int>(all.size()), all.data());
}

/// The message of `Options` for arguments of which one has no effect.
template <class Options>
std::string refusal_of_ignored(const std::vector<std::string>& arguments) {
  return message_of<Error>([&] {
    Options options;
    const CommandLine line;
    options.add_to(line);
    read(line, arguments);
    options.refuse_ignored(line);
  });
}

inline std::string no_effect(const std::string& option, const std::string& when) {
  return option + " has no effect " + when + "; leave it out";
}

}  // namespace tapeformer
