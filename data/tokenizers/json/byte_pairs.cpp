#include <tapeformer/data/tokenizers/byte_pair_merges.h>
#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <utility>

namespace tapeformer::tokenizer_json {
namespace {

/// Merges of characters, the earliest in the file first.
class BytePairModel : public Model {
 public:
  explicit BytePairModel(const Json& part)
      : ignores_merges_(part.value("ignore_merges", Json()) == true),
        fuses_unknown_(part.value("fuse_unk", Json()) == true),
        prefix_(token_text(part.value("continuing_subword_prefix", Json()))),
        suffix_(token_text(part.value("end_of_word_suffix", Json()))) {
    if (const Json dropout = part.value("dropout", Json()); dropout.is_number() && dropout != 0)
      throw UnsupportedPart{"a dropout of merges"};
    for (const auto& [token, id] : part.at("vocab").items()) vocabulary_.emplace(token, token_id(id));
    const std::string unknown = token_text(part.value("unk_token", Json()));
    if (!unknown.empty()) unknown_ = id_of(unknown);
    std::vector<BytePairMerge> merges;
    for (const Json& merge : part.at("merges")) {
      auto [left, right] = sides_of(merge);
      const std::string joined = left + right.substr(prefix_.size() <= right.size() ? prefix_.size() : 0);
      merges.push_back({id_of(left), id_of(right), id_of(joined)});
    }
    merges_ = BytePairMerges(std::move(merges));
    if (part.value("byte_fallback", Json()) == true) fall_back_to_bytes();
  }

  void encode(const std::string& word, std::vector<std::int32_t>& ids) const override {
    if (ignores_merges_) {
      if (const auto whole = vocabulary_.find(word); whole != vocabulary_.end())
        return ids.push_back(whole->second);
    }
    std::vector<std::int32_t> symbols = characters_of(word);
    merges_.apply(symbols.data(), symbols.size(), ids);
  }

 private:
  static std::pair<std::string, std::string> sides_of(const Json& merge) {
    if (merge.is_array()) return {merge.at(0).get<std::string>(), merge.at(1).get<std::string>()};
    const auto line = merge.get<std::string>();
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) throw UnsupportedPart{"the merge \"" + line + "\" of one part"};
    return {line.substr(0, space), line.substr(space + 1)};
  }
  std::int32_t id_of(const std::string& token) const {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end())
      throw UnsupportedPart{"merges with \"" + token + "\", which is not in the vocabulary"};
    return found->second;
  }

  std::vector<std::int32_t> characters_of(const std::string& word) const {
    std::vector<std::int32_t> symbols;
    bool is_unknown = false;  // whether the characters just before are: their one token is still to come
    const auto end_unknown = [&] {
      if (std::exchange(is_unknown, false)) symbols.push_back(unknown_);
    };
    for (std::size_t i = 0; i < word.size();) {
      const std::size_t length = code_point_length(std::string_view(word).substr(i));
      std::string character = word.substr(i, length);
      if (i > 0) character.insert(0, prefix_);
      i += length;
      if (i == word.size()) character += suffix_;
      if (const auto found = vocabulary_.find(character); found != vocabulary_.end()) {
        end_unknown();
        symbols.push_back(found->second);
      } else if (!append_bytes(character, symbols) && unknown_ >= 0) {
        if (!fuses_unknown_) end_unknown();
        is_unknown = true;
      }
    }
    end_unknown();
    return symbols;
  }

  const bool ignores_merges_, fuses_unknown_;
  const std::string prefix_, suffix_;
  std::int32_t unknown_ = -1;
  BytePairMerges merges_{{}};
};

}  // namespace

std::unique_ptr<Model> make_byte_pair_model(const Json& part) {
  return std::make_unique<BytePairModel>(part);
}

}  // namespace tapeformer::tokenizer_json
