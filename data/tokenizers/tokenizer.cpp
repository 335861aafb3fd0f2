#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// "word, space or bpe", each once.
std::string list_of(std::vector<std::string> names) {
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i)
    list += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return list;
}

}  // namespace

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += bytes_of(id);
  return text;
}

std::vector<std::int32_t> Tokenizer::ends() const {
  const std::optional<std::int32_t> id = end();
  return id ? std::vector<std::int32_t>{*id} : std::vector<std::int32_t>{};
}

std::string names_of(const TokenizerKinds& kinds) {
  std::vector<std::string> names;
  for (const TokenizerKind& kind : kinds)
    if (kind.train) names.push_back(kind.name);
  return list_of(names);
}

const TokenizerKind* find_kind(const TokenizerKinds& kinds, const std::string& name) {
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&](const TokenizerKind& kind) { return kind.train && kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

const TokenizerKind& tokenizer_kind(const TokenizerKinds& kinds, const std::string& name) {
  if (const TokenizerKind* found = find_kind(kinds, name)) return *found;
  throw DataError("[tokenizer] a kind is " + names_of(kinds) + "; got \"" + name + "\"");
}

std::unique_ptr<Tokenizer> parse_tokenizer(const TokenizerKinds& kinds, std::string_view content,
                                           const std::string& name) {
  TokenizerFile file = read_tokenizer_file(content, name);
  std::vector<std::string> known;
  for (const TokenizerKind& kind : kinds) {
    if (kind.in_files == file.kind) return kind.read(std::move(file.payload), name);
    known.push_back(kind.in_files);
  }
  throw DataError(
      name, 0,
      "holds a tokenizer of kind " + file.kind + "; one of kind " + list_of(known) + " is needed here");
}

std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerKinds& kinds, const std::string& path) {
  return parse_tokenizer(kinds, read_file(path), path);
}

}  // namespace tapeformer
