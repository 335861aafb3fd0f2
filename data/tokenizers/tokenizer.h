#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

/// The first ids of every vocabulary.
constexpr std::int32_t kPadding = 0, kUnknown = 1, kBegin = 2, kEnd = 3;
constexpr std::int32_t kSpecialTokens = 4;

/// Text to ids of pieces and back. Thread-safe once made.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of `text` (valid UTF-8), without begin and end.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The text of `ids` up to the first kEnd. Padding and begin are skipped; an unknown piece shows as "⁇".
  /// Throws:  DataError for an id outside the vocabulary
  virtual std::string decode(const std::vector<std::int32_t>& ids) const = 0;
  virtual Index vocabulary_size() const = 0;
  /// How a piece reads in a table: "<pad>", " house".
  virtual std::string piece(std::int32_t id) const = 0;
  /// The whole tokenizer as the content of one file.
  virtual std::string serialize() const = 0;
};

enum class TokenizerKind { word, character, bpe, unigram };

/// "word", "character", "bpe" or "unigram". Throws: DataError for any other name.
TokenizerKind tokenizer_kind(const std::string& name);
const char* name_of(TokenizerKind kind);

struct TokenizerConfig {
  TokenizerKind kind = TokenizerKind::bpe;
  /// At most so many pieces, the special ones included.
  Index vocabulary_size = 8000;
  /// Words and characters seen less often are unknown (word and character).
  Index min_count = 1;
  /// Spell what is not in the vocabulary in bytes instead of calling it unknown (bpe and unigram).
  bool byte_fallback = false;
};

/// A vocabulary for `sentences` (valid UTF-8). The same sentences in the same order give the same file.
/// Throws:  DataError if the sentences cannot fill a vocabulary of that kind and size
std::unique_ptr<Tokenizer> train_tokenizer(const TokenizerConfig& config,
                                           const std::vector<std::string>& sentences);

/// What `serialize` wrote; `name` is the file's, for errors.
/// Throws:  DataError for anything else
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view content, const std::string& name);

/// Throws:  DataError if the file is missing, damaged or something else
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

/// A model file that SentencePiece's own trainer wrote. Its pieces keep their order behind our special ids,
/// whatever ids its own special pieces have.
/// Throws:  DataError if the file is missing or not a model
std::unique_ptr<Tokenizer> load_sentencepiece_model(const std::string& path);

}  // namespace tapeformer
