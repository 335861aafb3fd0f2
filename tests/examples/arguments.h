#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

#include <iterator>
#include <sstream>

namespace tapeformer {

/// The arguments after the program's name, as main() gets them.
inline std::vector<const char*> command_words(const std::vector<std::string>& arguments) {
  std::vector<const char*> all = {"program"};
  for (const std::string& argument : arguments) all.push_back(argument.c_str());
  return all;
}

/// Reads the arguments of a program, without its name; false if they ask for help.
inline bool read(const CommandLine& line, const std::vector<std::string>& arguments) {
  const std::vector<const char*> all = command_words(arguments);
  return line.read(static_cast<int>(all.size()), all.data());
}

/// The options that the arguments give; `line` reads them.
template <class Options>
Options parsed(const std::vector<std::string>& arguments, const CommandLine& line = CommandLine()) {
  Options options;
  options.add_to(line);
  read(line, arguments);
  return options;
}

/// Reads the arguments on top of the defaults of the preset that they name.
template <class Options>
Options parsed_with_preset(const std::vector<std::string>& arguments,
                           const CommandLine& line = CommandLine()) {
  const std::vector<const char*> all = command_words(arguments);
  Options options(preset_named_in(static_cast<int>(all.size()), all.data()));
  options.add_to(line);
  read(line, arguments);
  return options;
}

/// "--layers 3" as two arguments.
inline std::vector<std::string> words_of(const std::string& arguments) {
  std::istringstream words(arguments);
  return {std::istream_iterator<std::string>(words), {}};
}

/// The words after `name` in the line of `text` that begins with it.
inline std::vector<std::string> words_after(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(name + " ") == 0) return words_of(line.substr(name.size()));
  return {};
}

/// Arguments, and the beginning of their refusal; "nothing was thrown" for none.
struct Refused {
  const char *arguments, *beginning;
};
template <class Refusal>
void check_refused(const std::vector<Refused>& table, const Refusal& refusal) {
  for (const Refused& row : table) {
    const std::string got = refusal(words_of(row.arguments));
    CHECK_MESSAGE(got.find(row.beginning) == 0, std::string(row.arguments), ": ", got);
  }
}

/// The message of `Options` for arguments one of which has no effect.
template <class Options>
std::string refusal_of_ignored(const std::vector<std::string>& arguments) {
  return message_of<Error>([&] {
    const CommandLine line;
    parsed<Options>(arguments, line).refuse_ignored(line);
  });
}

}  // namespace tapeformer
