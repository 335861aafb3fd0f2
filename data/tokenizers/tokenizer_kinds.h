#pragma once

#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/data/tokenizers/tokenizer.h>

#include <functional>
#include <unordered_map>

namespace tapeformer {

/// The word and character kinds: a list of pieces that concatenate to the text. Words are cut from a text
/// that starts with a space, which decoding removes, so that a word is the same piece wherever it stands.
/// The space before a word belongs to its piece, which makes decoding exact.
class PieceTokenizer : public Tokenizer {
 public:
  /// `kind` is word or character. Throws: DataError if pieces repeat.
  PieceTokenizer(TokenizerKind kind, std::vector<std::string> pieces);

  static std::unique_ptr<Tokenizer> train(const TokenizerConfig& config,
                                          const std::vector<std::string>& sentences);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(const std::vector<std::int32_t>& ids) const override;
  Index vocabulary_size() const override { return kSpecialTokens + static_cast<Index>(pieces_.size()); }
  std::string piece(std::int32_t id) const override;
  std::string serialize() const override;

 private:
  TokenizerKind kind_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // views into pieces_
};

/// The BPE and unigram kinds: a SentencePiece model whose pieces follow our special ids.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `model` is a model file's content. Throws: DataError naming `name` if it is not
  SentencePieceTokenizer(std::string model, const std::string& name);

  static std::unique_ptr<Tokenizer> train(const TokenizerConfig& config,
                                          const std::vector<std::string>& sentences);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(const std::vector<std::int32_t>& ids) const override;
  Index vocabulary_size() const override;
  std::string piece(std::int32_t id) const override;
  std::string serialize() const override;

 private:
  SentencePieceModel model_;
  std::vector<std::int32_t> model_ids_;  // by our id
  std::vector<std::int32_t> ids_;        // by the model's id
};

/// "<pad>", "<unk>", "<begin>", "<end>".
const char* special_piece(std::int32_t id);

/// Throws: DataError if `id` is outside [0, size).
void check_token(std::int32_t id, Index size);
/// Throws: DataError naming the `kind` of tokenizer and the first byte that is not UTF-8, `where` behind it.
void check_utf8(std::string_view text, const char* kind, const char* where = "");

/// Cuts text into words, numbers and punctuation, and calls `piece` on each from left to right. One white
/// space before a piece belongs to it. An apostrophe inside a word goes with the shorter neighbour, or the
/// right one if both are equally long (l'|homme, Tom|'s, I|'m).
void for_each_word(std::string_view text, const std::function<void(std::string_view)>& piece);

}  // namespace tapeformer
