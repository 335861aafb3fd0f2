#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

/// The special ids of Tapeformer's own tokenizers of sentences.
constexpr std::int32_t kPadding = 0, kUnknown = 1, kBegin = 2, kEnd = 3;
/// The number of special ids.
constexpr std::int32_t kSpecialTokens = 4;

/// Text to token ids and back. Tokenizers of sentences, for translation, have ids for padding, begin, end and
/// unknown pieces. Tokenizers of text of any length are for language models, which predict every id: text
/// that the vocabulary does not cover is an error there. Thread-safe once made.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text` to `ids`, without begin and end. Byte-level kinds take any bytes, the others
  /// valid UTF-8.
  /// Throws:  DataError naming what the vocabulary lacks, or where `text` is not UTF-8
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  /// The ids of a whole text.
  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode(text, ids);
    return ids;
  }
  /// The bytes that `id` adds within a text, perhaps a part of a character; none for control tokens.
  /// Throws:  DataError for an id outside the vocabulary
  virtual std::string bytes_of(std::int32_t id) const = 0;
  /// The token as in the vocabulary: "<pad>", " house", "Ġhouse" in GPT-2's, "▁house" in unigram's.
  virtual std::string piece(std::int32_t id) const { return bytes_of(id); }
  /// The text of `ids`, without the space that some kinds put before the first word. Most tokenizers of
  /// sentences stop at the end token and write "⁇" for an unknown piece.
  virtual std::string decode(const std::vector<std::int32_t>& ids) const;
  /// The number of ids.
  virtual Index vocabulary_size() const = 0;
  /// The token that fills up shorter sentences of a batch; for tokenizers of sentences.
  virtual std::int32_t padding() const { return kPadding; }
  /// The token that a document begins with, in kinds that have one.
  virtual std::optional<std::int32_t> begin() const { return {}; }
  /// The token that a document ends with, in kinds that have one.
  virtual std::optional<std::int32_t> end() const { return {}; }
  /// The ids at which a generated text ends.
  virtual std::vector<std::int32_t> ends() const;
  /// The id of a control token such as "</s>", or of an added token, by its name.
  virtual std::optional<std::int32_t> find(const std::string& /*token*/) const { return {}; }
  /// The length of the longest prefix of `text` that can be encoded by itself, whatever follows; 0 if none.
  /// A stream can thus be encoded in pieces, the first by `encode` and the others by `encode_rest`, to the
  /// ids of the whole.
  virtual std::size_t safe_cut(std::string_view /*text*/) const { return 0; }
  /// Like `encode`, for text after a prefix that `safe_cut` allowed.
  virtual void encode_rest(std::string_view text, std::vector<std::int32_t>& ids) const { encode(text, ids); }
  /// The tokenizer without controls from other files; see tokenizer_controls.h.
  virtual const Tokenizer& plain() const { return *this; }
  /// The kind as its file names it: "word", "bpe", "sentencepiece".
  virtual const char* kind() const = 0;
  /// The whole tokenizer as the content of one file: write_tokenizer_file(kind(), payload).
  virtual std::string serialize() const = 0;
};

/// Passes the text of a corpus to `reader`, piece by piece and in order. Can be called more than once. Pieces
/// end between code points; those of sentences are a sentence each.
using TextSource = std::function<void(const std::function<void(std::string_view piece)>& reader)>;

/// A kind of tokenizer.
struct TokenizerKind {
  std::string name;      ///< its name in options
  std::string in_files;  ///< its name in files; kinds that read the same files share it
  /// Makes a tokenizer of at most `vocabulary_size` ids, where the kind has a choice; empty for kinds that
  /// are only read. The same text gives the same file.
  /// Throws:  DataError if the text is empty or not UTF-8 where the kind needs it, or the size is too small
  std::function<std::unique_ptr<Tokenizer>(const TextSource& text, Index vocabulary_size)> train;
  /// The tokenizer that a file's payload describes; errors call the file `name`.
  /// Throws:  DataError if it is anything else
  std::function<std::unique_ptr<Tokenizer>(std::string payload, const std::string& name)> read;
  Index least_vocabulary = 0;    ///< of kinds of text: the smallest that can be requested, 0 without a choice
  bool takes_any_bytes = false;  ///< can encode bytes that are not UTF-8 text
  bool is_closed = false;        ///< cannot spell unseen characters, so it is trained on validation text too
};
/// A table of the kinds that a program offers.
using TokenizerKinds = std::vector<TokenizerKind>;

/// The kinds for sentences, in translation: word, space (for text already cut), character, bpe, unigram and
/// marian; and transformers, which is only read.
const TokenizerKinds& sentence_tokenizers();
/// The kinds for text, in language models: character, byte, bpe (GPT-2's), sentencepiece, tokenizer_json.
const TokenizerKinds& text_tokenizers();

/// The names of the kinds that can be trained, as in "word, space or bpe".
std::string names_of(const TokenizerKinds& kinds);
/// The kind of that name; nullptr if there is none, or it is only read.
const TokenizerKind* find_kind(const TokenizerKinds& kinds, const std::string& name);
/// As find_kind(). Throws: DataError that lists the names instead of returning nullptr
const TokenizerKind& tokenizer_kind(const TokenizerKinds& kinds, const std::string& name);

/// The inverse of `serialize`; errors call the file `name`. Throws: DataError if `content` is anything else
std::unique_ptr<Tokenizer> parse_tokenizer(const TokenizerKinds& kinds, std::string_view content,
                                           const std::string& name);
/// Reads the tokenizer that a file holds. Throws: DataError if the file is unreadable or holds anything else
std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerKinds& kinds, const std::string& path);

}  // namespace tapeformer
