#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <cstdio>

namespace tapeformer::tokenizer_json {
namespace {

bool is_set(const Json& part, const char* flag) { return part.value(flag, Json()) == true; }

std::pair<std::string, std::string> sides_of(const Json& merge) {
  if (merge.is_array()) return {merge.at(0).get<std::string>(), merge.at(1).get<std::string>()};
  const auto line = merge.get<std::string>();
  const std::size_t space = line.find(' ');
  if (space == std::string::npos) throw UnsupportedPart{"the merge \"" + line + "\" of one part"};
  return {line.substr(0, space), line.substr(space + 1)};
}

}  // namespace

BytePairModel::BytePairModel(const Json& part)
    : ignores_merges_(is_set(part, "ignore_merges")), fuses_unknown_(is_set(part, "fuse_unk")) {
  if (const std::string type = part.value("type", "BPE"); type != "BPE")
    throw UnsupportedPart{"a model of type " + type};
  for (const char* other : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json value = part.value(other, Json()); !value.is_null() && value != "" && value != 0)
      throw UnsupportedPart{std::string("a model with ") + other};
  for (const auto& [token, id] : part.at("vocab").items()) vocabulary_.emplace(token, id.get<std::int32_t>());
  if (const Json unknown = part.value("unk_token", Json()); !unknown.is_null() && unknown != "")
    unknown_ = id_of(unknown);
  std::vector<BytePairMerge> merges;
  for (const Json& merge : part.at("merges")) {
    const auto [left, right] = sides_of(merge);
    merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
  merges_ = BytePairMerges(std::move(merges));
  for (unsigned byte = 0; is_set(part, "byte_fallback") && byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    if (const auto found = vocabulary_.find(name); found != vocabulary_.end())
      bytes_.push_back(found->second);
  }
  if (bytes_.size() < 256) bytes_.clear();
}

void BytePairModel::encode(const std::string& piece, std::vector<std::int32_t>& ids) const {
  if (ignores_merges_) {
    if (const auto whole = vocabulary_.find(piece); whole != vocabulary_.end())
      return ids.push_back(whole->second);
  }
  std::vector<std::int32_t> symbols = characters_of(piece);
  merges_.apply(symbols.data(), symbols.size(), ids);
}

std::int32_t BytePairModel::id_of(const std::string& token) const {
  const auto found = vocabulary_.find(token);
  if (found == vocabulary_.end())
    throw UnsupportedPart{"a use of \"" + token + "\", which is not in the vocabulary"};
  return found->second;
}

std::vector<std::int32_t> BytePairModel::characters_of(const std::string& piece) const {
  std::vector<std::int32_t> symbols;
  bool after_unknown = false;
  for (const std::string_view character : split_code_points(piece)) {
    const auto found = vocabulary_.find(std::string(character));
    const bool is_known = found != vocabulary_.end();
    if (is_known) {
      symbols.push_back(found->second);
    } else if (!bytes_.empty()) {
      for (const char c : character) symbols.push_back(bytes_[static_cast<unsigned char>(c)]);
    } else if (unknown_ && !(fuses_unknown_ && after_unknown)) {
      symbols.push_back(*unknown_);
    }
    after_unknown = !is_known;
  }
  return symbols;
}

}  // namespace tapeformer::tokenizer_json
