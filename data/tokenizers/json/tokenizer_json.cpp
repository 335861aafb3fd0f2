#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/json/added.h>
#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/json/tokenizer_json.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

#include <algorithm>

namespace tapeformer {
namespace {

using namespace tokenizer_json;

/// The special tokens that a post-processor puts around a text; "" where it puts none.
struct Ends {
  std::string begin, end;
};

Ends ends_of(const Json& part) {
  const std::string type = type_of(part);
  if (type == "none" || type == "ByteLevel") return {};
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {part.at("cls").at(0).get<std::string>(), part.at("sep").at(0).get<std::string>()};
  if (type == "Sequence") {
    Ends all;
    for (const Json& one : part.at("processors")) {
      const Ends ends = ends_of(one);
      if (!ends.begin.empty() || !ends.end.empty()) all = ends;
    }
    return all;
  }
  if (type != "TemplateProcessing") throw UnsupportedPart{"a post-processor of type " + type};
  Ends ends;
  bool after_text = false;
  for (const Json& item : part.at("single")) {
    if (item.contains("Sequence")) {
      after_text = true;
      continue;
    }
    std::string& end = after_text ? ends.end : ends.begin;
    if (!end.empty()) throw UnsupportedPart{"a template with several tokens on one side of a text"};
    end = item.at("SpecialToken").at("id").get<std::string>();
  }
  return ends;
}

Json part_of(const Json& file, const char* name) { return file.contains(name) ? file.at(name) : Json(); }

class TokenizerJson : public Tokenizer {
 public:
  explicit TokenizerJson(std::string text, const Json& file)
      : text_(std::move(text)),
        normalize_(make_normalizer(part_of(file, "normalizer"))),
        split_(make_splitter(part_of(file, "pre_tokenizer"))),
        model_(make_model(file.at("model"))),
        added_(part_of(file, "added_tokens"), model_->vocabulary(), normalize_) {
    std::int32_t last = -1;
    for (const auto& [token, id] : model_->vocabulary()) last = std::max(last, id);
    for (const AddedToken& token : added_.tokens()) last = std::max(last, token.id);
    const std::size_t count = model_->vocabulary().size() + added_.tokens().size();
    if (last >= static_cast<Index>(count + kMostGaps))
      throw UnsupportedPart{format("the id {} among {} tokens", last, count)};
    tokens_.resize(static_cast<std::size_t>(last) + 1);
    const Decoder decode = make_decoder(part_of(file, "decoder"));
    for (const auto& [token, id] : model_->vocabulary())
      tokens_[static_cast<std::size_t>(id)] = {decode(token, true), decode(token, false)};
    for (const AddedToken& token : added_.tokens()) {
      tokens_[static_cast<std::size_t>(token.id)] =
          token.is_special ? Token{{}, {}, true} : Token{decode(token.text, true), decode(token.text, false)};
    }
    const Ends ends = ends_of(part_of(file, "post_processor"));
    if (!ends.begin.empty()) begin_ = find(ends.begin);
    if (!ends.end.empty()) end_ = find(ends.end);
    for (const char* usual : {kEndOfText, "<|end_of_text|>"})
      if (!end_) end_ = find(usual);
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    check_utf8(text, "tokenizer.json");
    added_.encode(text, ids, [&](const std::string& part, bool begins_text) {
      std::vector<Piece> pieces = {{part, begins_text}};
      split_(pieces);
      for (const Piece& piece : pieces)
        if (!piece.text.empty()) model_->encode(piece.text, ids);
    });
  }
  std::string bytes_of(std::int32_t id) const override {
    check_token(id, vocabulary_size());
    return tokens_[static_cast<std::size_t>(id)].within;
  }
  std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::string text;
    bool is_first = true;
    for (const std::int32_t id : ids) {
      check_token(id, vocabulary_size());
      const Token& token = tokens_[static_cast<std::size_t>(id)];
      if (token.is_silent) continue;
      text += std::exchange(is_first, false) ? token.first : token.within;
    }
    return text;
  }
  Index vocabulary_size() const override { return static_cast<Index>(tokens_.size()); }
  std::optional<std::int32_t> begin() const override { return begin_; }
  std::optional<std::int32_t> end() const override { return end_; }
  std::optional<std::int32_t> find(const std::string& token) const override {
    for (const AddedToken& added : added_.tokens())
      if (added.content == token) return added.id;
    const auto found = model_->vocabulary().find(token);
    return found == model_->vocabulary().end() ? std::nullopt : std::optional(found->second);
  }
  // safe_cut() stays 0: the result of a normaliser or a pattern may depend on all of the text that follows.
  const char* kind() const override { return "tokenizer_json"; }
  std::string serialize() const override { return write_tokenizer_file(kind(), text_); }

 private:
  /// The text that a token adds at the start, and later.
  struct Token {
    std::string first, within;
    bool is_silent = false;
  };

  const std::string text_;
  const Normalizer normalize_;
  const Splitter split_;
  const std::unique_ptr<Model> model_;
  const AddedTokens added_;
  std::vector<Token> tokens_;
  std::optional<std::int32_t> begin_, end_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer_json(const Json& file, std::string text, const std::string& name) {
  try {
    return reading_json(name, "is damaged",
                        [&] { return std::make_unique<TokenizerJson>(std::move(text), file); });
  } catch (const UnsupportedPart& part) {
    throw DataError(
        name, 0,
        format("has {}, which is not supported; try the model's tokenizer.model, or another tokenizer",
               part.what));
  }
}

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string text, const std::string& name) {
  const Json file = reading_json(name, "is damaged", [&] { return parse_json<Json>(text, "it"); });
  return make_tokenizer_json(file, std::move(text), name);
}

TokenizerKind text_tokenizer_json() { return {"tokenizer_json", "tokenizer_json", {}, parse_tokenizer_json}; }

}  // namespace tapeformer
