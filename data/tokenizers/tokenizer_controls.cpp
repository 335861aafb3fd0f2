#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/tokenizer_controls.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

#include <algorithm>
#include <map>

namespace tapeformer {
namespace {

using nlohmann::json;
using tokenizer_json::AddedToken;
using tokenizer_json::AddedTokens;

constexpr const char* kControls = "controls";
constexpr const char* kOldName = "begins_anew";  // of restarts_after_added, in files of earlier versions

class ControlledTokenizer : public Tokenizer {
 public:
  ControlledTokenizer(std::unique_ptr<Tokenizer> plain, TokenizerControls controls)
      : plain_(std::move(plain)),
        controls_(std::move(controls)),
        added_(controls_.added, {}, [](const std::string& text) { return text; }),
        size_(plain_->vocabulary_size()) {
    for (const AddedToken& token : added_.tokens()) {
      const bool is_taken = token.id < plain_->vocabulary_size() && plain_->find(token.content) != token.id &&
                            plain_->bytes_of(token.id) != token.content;
      if (is_taken)
        throw tokenizer_json::UnsupportedPart{
            format("the added token \"{}\" with the id {} of another token", token.content, token.id)};
      if (token.id >= plain_->vocabulary_size() + static_cast<Index>(added_.tokens().size() + kMostGaps))
        throw tokenizer_json::UnsupportedPart{
            format("the added token \"{}\" with the id {}, far from the others", token.content, token.id)};
      std::string text = token.id < plain_->vocabulary_size() ? plain_->bytes_of(token.id) : "";
      if (text.empty()) text = token.content;
      texts_[token.id] = token.is_special ? "" : text;
      size_ = std::max<Index>(size_, token.id + Index{1});
    }
    if (controls_.begin) check_token(*controls_.begin, size_);
    const auto is_ours = [&](std::int32_t id) { return id >= 0 && id < size_; };
    const auto end = std::find_if(controls_.ends.begin(), controls_.ends.end(), is_ours);
    end_ = end == controls_.ends.end() ? plain_->end() : *end;
    if (end == controls_.ends.end() && end_) controls_.ends.push_back(*end_);
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    append(text, true, ids);
  }
  void encode_rest(std::string_view text, std::vector<std::int32_t>& ids) const override {
    append(text, false, ids);
  }
  std::string bytes_of(std::int32_t id) const override {
    const auto added = texts_.find(id);
    if (added != texts_.end()) return added->second;
    check_token(id, size_);
    return id < plain_->vocabulary_size() ? plain_->bytes_of(id) : "";
  }
  std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::string text;
    std::vector<std::int32_t> part;
    bool is_first = true;
    const auto finish = [&] {
      text +=
          is_first || controls_.restarts_after_added ? plain_->decode(part) : plain_->Tokenizer::decode(part);
      part.clear();
      is_first = false;
    };
    for (const std::int32_t id : ids) {
      if (id >= 0 && id < plain_->vocabulary_size() && texts_.count(id) == 0) {
        part.push_back(id);
      } else {
        if (!part.empty()) finish();
        text += bytes_of(id);
        is_first = false;
      }
    }
    if (!part.empty()) finish();
    return text;
  }
  Index vocabulary_size() const override { return size_; }
  std::optional<std::int32_t> begin() const override { return controls_.begin; }
  std::optional<std::int32_t> end() const override { return end_; }
  std::vector<std::int32_t> ends() const override { return controls_.ends; }
  std::optional<std::int32_t> find(const std::string& token) const override {
    for (const AddedToken& added : added_.tokens())
      if (added.content == token) return added.id;
    return plain_->find(token);
  }
  /// An added token may begin anywhere.
  std::size_t safe_cut(std::string_view text) const override {
    return added_.tokens().empty() ? plain_->safe_cut(text) : 0;
  }
  const char* kind() const override { return plain_->kind(); }
  std::string serialize() const override {
    const json described = {
        {"begin", controls_.begin ? json(*controls_.begin) : json()},
        {"begin_name", controls_.begin_name},
        {"ends", controls_.ends},
        {"added", controls_.added},
        {controls_.restart_name, controls_.restarts_after_added},
    };
    return write_tokenizer_file(kControls, described.dump() + "\n" + plain_->serialize());
  }
  const Tokenizer& plain() const override { return *plain_; }

  const TokenizerControls& controls() const { return controls_; }
  const std::vector<AddedToken>& added() const { return added_.tokens(); }

 private:
  void append(std::string_view text, bool begins_text, std::vector<std::int32_t>& ids) const {
    added_.encode(text, ids, [&](const std::string& part, bool is_first) {
      const bool starts = is_first ? begins_text : controls_.restarts_after_added;
      starts ? plain_->encode(part, ids) : plain_->encode_rest(part, ids);
    });
  }

  const std::unique_ptr<const Tokenizer> plain_;
  TokenizerControls controls_;
  const AddedTokens added_;
  std::map<std::int32_t, std::string> texts_;  // of added tokens
  Index size_;
  std::optional<std::int32_t> end_;
};

const ControlledTokenizer* controlled(const Tokenizer& tokenizer) {
  return dynamic_cast<const ControlledTokenizer*>(&tokenizer);
}

std::unique_ptr<Tokenizer> read_controlled(const std::string& payload, const std::string& name) {
  const auto parts = split_first_line(payload);
  const std::string plain(parts.second);
  if (read_tokenizer_file(plain, name).kind == kControls)
    throw DataError(name, 0, "is damaged: it has controls twice");
  TokenizerControls controls;
  reading_json(name, "is damaged", [&] {
    const json described = parse_json<json>(parts.first, "it");
    if (const json& begin = described.at("begin"); !begin.is_null()) controls.begin = token_id(begin);
    described.at("begin_name").get_to(controls.begin_name);
    for (const json& end : described.at("ends")) controls.ends.push_back(token_id(end));
    controls.added = described.at("added");
    if (described.contains(kOldName)) controls.restart_name = kOldName;
    described.at(controls.restart_name).get_to(controls.restarts_after_added);
  });
  return with_controls(parse_tokenizer(text_tokenizers(), plain, name), controls, name);
}

}  // namespace

TokenizerControls TokenizerControls::of(const Tokenizer& tokenizer) {
  if (const auto* known = controlled(tokenizer)) return known->controls();
  TokenizerControls controls;
  controls.begin = tokenizer.begin();
  controls.ends = tokenizer.ends();
  return controls;
}

std::unique_ptr<Tokenizer> with_controls(std::unique_ptr<Tokenizer> plain, const TokenizerControls& controls,
                                         const std::string& name) {
  if (controls.added.empty() && controls.begin == plain->begin() && controls.ends == plain->ends())
    return plain;
  try {
    return reading_json(name, "is damaged",
                        [&] { return std::make_unique<ControlledTokenizer>(std::move(plain), controls); });
  } catch (const tokenizer_json::UnsupportedPart& part) {
    throw DataError(name, 0, "has " + part.what);
  }
}

TokenizerKind controlled_text() { return {kControls, kControls, {}, read_controlled}; }

const std::vector<AddedToken>& added_tokens(const Tokenizer& tokenizer) {
  static const std::vector<AddedToken> none;
  const auto* known = controlled(tokenizer);
  return known != nullptr ? known->added() : none;
}

bool restarts_after_added(const Tokenizer& tokenizer) {
  const auto* known = controlled(tokenizer);
  return known != nullptr && known->controls().restarts_after_added;
}

}  // namespace tapeformer
