#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <functional>
#include <unordered_map>

namespace tapeformer {

/// A list of pieces that concatenate to the text: what the word and the character tokenizer share. They
/// differ in how they cut. The cut text starts with a space that decoding takes off, so that a word has one
/// form wherever it stands; as the space before a word belongs to its piece, decoding is exact.
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

/// BPE and unigram pieces of the SentencePiece library.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `model` is a serialized SentencePiece model. Throws: DataError naming `name` if it is not.
  SentencePieceTokenizer(std::string model, const std::string& name);
  ~SentencePieceTokenizer() override;

  static std::unique_ptr<Tokenizer> train(const TokenizerConfig& config,
                                          const std::vector<std::string>& sentences);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(const std::vector<std::int32_t>& ids) const override;
  Index vocabulary_size() const override;
  std::string piece(std::int32_t id) const override;
  std::string serialize() const override;

 private:
  struct Library;  // keeps the library's header out of ours
  std::unique_ptr<Library> library_;
  std::string model_;
};

/// A SentencePiece model by the trainer's `options` that keeps text as it is. The same sentences in the same
/// order give the same model.
/// Throws:  DataError if the sentences cannot fill a vocabulary of that size
std::string train_sentencepiece(std::unordered_map<std::string, std::string> options,
                                const std::vector<std::string>& sentences);

/// "<pad>", "<unk>", "<begin>", "<end>".
const char* special_piece(std::int32_t id);

/// Throws: DataError if `id` is outside [0, size).
void check_token(std::int32_t id, Index size);

/// Cuts text into words, numbers and marks, calling `piece` on each from left to right. One white space
/// before a word or mark belongs to it; an apostrophe inside a word goes with its shorter neighbour, the
/// right one when both are equally long (l'|homme, Tom|'s, I|'m).
void for_each_word(std::string_view text, const std::function<void(std::string_view)>& piece);

}  // namespace tapeformer
