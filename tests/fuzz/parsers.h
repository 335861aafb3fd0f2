#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

using Seeds = std::vector<std::string>;

/// A reader of untrusted bytes, for the fuzzer and for tests. A new one is two functions and a row of
/// the table in the file of its family.
struct Parser {
  const char* name;
  /// Small inputs that are accepted.
  std::function<Seeds()> seeds;
  /// Reads an input and uses the result as a program would. May throw a tapeformer::Error.
  std::function<void(const std::string& input)> read;
};

// The rows of the table, by the files that define them, and all of them.
std::vector<Parser> format_parsers();
std::vector<Parser> run_parsers();
std::vector<Parser> foreign_model_parsers();
std::vector<Parser> tokenizer_parsers();
std::vector<Parser> text_parsers();
const std::vector<Parser>& parsers();
/// Throws: Error that lists the names
const Parser& parser_named(const std::string& name);

/// True if the parser accepts the input, and false if it throws an Error that names it. Passes on all other
/// exceptions.
bool accepts(const Parser& parser, const std::string& input);

// For the parsers.

/// A file in a temporary folder of this process; the empty name is the folder itself.
std::string input_path(const std::string& name = {});
/// Replaces a file in that folder, and returns its path.
std::string put_input(const std::string& name, const std::string& bytes);
std::string content_of(const std::string& path);
/// Makes a folder there with copies of files of tests/golden, unless it is there, and returns its path.
std::string golden_copy(const std::string& folder, const std::vector<std::string>& files);

/// An input of several files, and the files again; the last ones may be missing, and then are empty.
std::string joined(const std::vector<std::string>& files);
std::vector<std::string> separated(const std::string& input, std::size_t count);

}  // namespace tapeformer
