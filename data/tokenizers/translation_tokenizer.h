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
/// The number of those ids.
constexpr std::int32_t kSpecialTokens = 4;

/// A tokenizer for translation: a sentence to the ids of pieces and back. The first four ids are reserved,
/// and a sentence may hold unknown pieces. (For language models see TextTokenizer.) Thread-safe once made.
class TranslationTokenizer {
 public:
  virtual ~TranslationTokenizer() = default;

  /// The ids of `text` (valid UTF-8), without begin and end.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The text of `ids` up to the first kEnd, without padding and begin; an unknown piece reads "⁇".
  /// Throws:  DataError for an id outside the vocabulary
  virtual std::string decode(const std::vector<std::int32_t>& ids) const = 0;
  /// The number of ids, special ones included.
  virtual Index vocabulary_size() const = 0;
  /// A piece of the vocabulary: "<pad>", " house", and of SentencePiece's "▁house".
  virtual std::string piece(std::int32_t id) const = 0;
  /// The content of a file that load_translation_tokenizer reads.
  virtual std::string serialize() const = 0;
};

/// How text is cut: into words, into what stands between white space (for text that another program has cut),
/// into characters, or into pieces found by byte-pair encoding or a unigram model.
enum class TokenizerKind { word, space, character, bpe, unigram };

/// "word", "space", "character", "bpe" or "unigram". Throws: DataError for any other name.
TokenizerKind tokenizer_kind(const std::string& name);
const char* name_of(TokenizerKind kind);

struct TokenizerConfig {
  TokenizerKind kind = TokenizerKind::bpe;  ///< how text is cut
  /// The largest number of pieces, including the special ones.
  Index vocabulary_size = 8000;
  /// Rarer pieces are unknown (kinds word, space and character).
  Index min_count = 1;
  /// Spell characters outside the vocabulary in bytes instead of making them unknown (kinds bpe and unigram).
  bool byte_fallback = false;
};

/// Trains on `sentences` (valid UTF-8). The same sentences in the same order give the same file.
/// Throws:  DataError if the sentences cannot fill a vocabulary of that kind and size
std::unique_ptr<TranslationTokenizer> train_translation_tokenizer(const TokenizerConfig& config,
                                                                  const std::vector<std::string>& sentences);

/// The inverse of `serialize`; errors call the file `name`.
/// Throws:  DataError if `content` is anything else
std::unique_ptr<TranslationTokenizer> parse_translation_tokenizer(std::string_view content,
                                                                  const std::string& name);

/// Throws:  DataError if the file is missing, damaged or something else
std::unique_ptr<TranslationTokenizer> load_translation_tokenizer(const std::string& path);

/// Reads a model file of SentencePiece's own trainer. Its pieces follow our special ids in their order,
/// whatever ids its own special pieces have.
/// Throws:  DataError if the file is missing or not a model
std::unique_ptr<TranslationTokenizer> load_sentencepiece_model(const std::string& path);

}  // namespace tapeformer
