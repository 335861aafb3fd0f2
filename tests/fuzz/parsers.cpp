#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/fuzz/parsers.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace tapeformer {
namespace {

constexpr const char* kBetween = "\n=====\n";
constexpr std::size_t kBetweenBytes = 7;
constexpr std::size_t kLongestMessage = 100'000;

}  // namespace

const std::vector<Parser>& parsers() {
  static const std::vector<Parser> kParsers = [] {
    std::vector<Parser> all;
    for (const std::vector<Parser>& family :
         {format_parsers(), run_parsers(), foreign_model_parsers(), tokenizer_parsers(), text_parsers()})
      all.insert(all.end(), family.begin(), family.end());
    return all;
  }();
  return kParsers;
}

const Parser& parser_named(const std::string& name) {
  std::string names;
  for (const Parser& parser : parsers()) {
    if (name == parser.name) return parser;
    names += (names.empty() ? "" : ", ") + std::string(parser.name);
  }
  throw Error("a parser is one of " + names + "; got " + name);
}

bool accepts(const Parser& parser, const std::string& input) {
  try {
    parser.read(input);
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.empty() || message.size() > kLongestMessage)
      throw std::logic_error("a message of " + std::to_string(message.size()) + " bytes");
    return false;
  }
}

std::string input_path(const std::string& name) {
  static const TemporaryFolder folder;
  return folder.file(name);
}

std::string put_input(const std::string& name, const std::string& bytes) {
  const std::string path = input_path(name);
  write_bytes(path, bytes);
  return path;
}

std::string content_of(const std::string& path) { return read_bytes(path); }

std::string golden_copy(const std::string& folder, const std::vector<std::string>& files) {
  const std::string path = input_path(folder), golden = TAPEFORMER_SOURCE_DIR "/tests/golden/";
  if (!std::filesystem::create_directories(path)) return path;
  for (const std::string& file : files)
    std::filesystem::copy_file(golden + file, path + "/" + std::filesystem::path(file).filename().string());
  return path;
}

std::string joined(const std::vector<std::string>& files) {
  std::string input;
  for (const std::string& file : files) input += (&file == files.data() ? "" : kBetween) + file;
  return input;
}

std::vector<std::string> separated(const std::string& input, std::size_t count) {
  std::vector<std::string> files;
  std::size_t from = 0;
  while (files.size() + 1 < count && from <= input.size()) {
    const std::size_t end = std::min(input.find(kBetween, from), input.size());
    files.push_back(input.substr(from, end - from));
    from = end + kBetweenBytes;
  }
  files.push_back(from <= input.size() ? input.substr(from) : "");
  files.resize(count);
  return files;
}

}  // namespace tapeformer
