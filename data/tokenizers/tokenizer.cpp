#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

#include <algorithm>

namespace tapeformer {
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
  return alternatives(names);
}

const TokenizerKind* find_kind(const TokenizerKinds& kinds, const std::string& name) {
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&](const TokenizerKind& kind) { return kind.train && kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

const TokenizerKind& tokenizer_kind(const TokenizerKinds& kinds, const std::string& name) {
  if (const TokenizerKind* found = find_kind(kinds, name)) return *found;
  throw DataError(format("[tokenizer] the kind must be {}; got \"{}\"", names_of(kinds), name));
}

std::unique_ptr<Tokenizer> parse_tokenizer(const TokenizerKinds& kinds, std::string_view content,
                                           const std::string& name) {
  TokenizerFile file = read_tokenizer_file(content, name);
  std::vector<std::string> known;
  for (const TokenizerKind& kind : kinds) {
    if (kind.in_files == file.kind) return kind.read(std::move(file.payload), name);
    known.push_back(kind.in_files);
  }
  known.erase(std::unique(known.begin(), known.end()), known.end());
  throw DataError(
      name, 0,
      format("holds a tokenizer of kind {}; one of kind {} is needed here", file.kind, alternatives(known)));
}

std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerKinds& kinds, const std::string& path) {
  return parse_tokenizer(kinds, read_file(path), path);
}

}  // namespace tapeformer
