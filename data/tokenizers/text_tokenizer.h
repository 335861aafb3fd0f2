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

/// Text to the token ids of a language model and back. Every id is one that the model predicts: unlike
/// Tokenizer's, no id is set aside. Thread-safe once made.
class TextTokenizer {
 public:
  virtual ~TextTokenizer() = default;

  /// Appends the ids of `text` to `ids`. Byte-level kinds take any bytes, the others valid UTF-8.
  /// Throws:  DataError naming what the vocabulary does not have, or where `text` is not UTF-8
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode(text, ids);
    return ids;
  }
  /// What `id` adds to a text that is not empty; control tokens add nothing. May be part of a character.
  /// Throws:  DataError for an id outside the vocabulary
  virtual std::string bytes_of(std::int32_t id) const = 0;
  /// The bytes of `ids`, one after the other; a kind that puts a space before the first word takes it off.
  virtual std::string decode(const std::vector<std::int32_t>& ids) const;
  virtual Index vocabulary_size() const = 0;
  /// What a document begins and ends with, where the kind has it.
  virtual std::optional<std::int32_t> begin() const { return {}; }
  virtual std::optional<std::int32_t> end() const { return {}; }
  /// The length of the longest head of `text` that can be encoded by itself, whatever follows; 0 if none. It
  /// lets a stream be encoded in pieces (the first by `encode`, the others by `encode_rest`) with the ids of
  /// the whole.
  virtual std::size_t safe_cut(std::string_view text) const = 0;
  /// As `encode`, for what follows a head that `safe_cut` gave: ids of the middle or end of a text.
  virtual void encode_rest(std::string_view text, std::vector<std::int32_t>& ids) const { encode(text, ids); }
  /// "character", "byte", "bpe" or "sentencepiece".
  virtual const char* kind() const = 0;
  /// The whole tokenizer as the content of one file: write_tokenizer_file(kind(), payload).
  virtual std::string serialize() const = 0;
};

/// What `serialize` wrote; `name` is the file's, for errors. Throws: DataError for anything else
std::unique_ptr<TextTokenizer> parse_text_tokenizer(std::string_view content, const std::string& name);
std::unique_ptr<TextTokenizer> load_text_tokenizer(const std::string& path);

/// Hands the text of a corpus to its reader, piece by piece and in order; may be called more than once.
/// Pieces end where a code point ends.
using TextSource = std::function<void(const std::function<void(std::string_view piece)>& reader)>;

/// A token for every code point that occurs, in order of code points.
std::unique_ptr<TextTokenizer> train_character_tokenizer(const TextSource& text);

/// 256 ids, one a byte.
std::unique_ptr<TextTokenizer> make_byte_tokenizer();

/// GPT-2's byte-level pair encoding, with merges learnt from `text`: ids 0 to 255 are the bytes in GPT-2's
/// order, then one id a merge, then "<|endoftext|>". Pairs that occur equally often: the lexicographically
/// greater one (by its two byte strings) is merged first. Fewer merges are learnt if no pair occurs twice.
/// Throws:  DataError unless vocabulary_size >= 257
std::unique_ptr<TextTokenizer> train_byte_pair_tokenizer(const TextSource& text, Index vocabulary_size);

/// GPT-2's published files: token -> id as JSON (encoder.json, vocab.json); merges (vocab.bpe, merges.txt).
/// Throws:  DataError naming the file and the entry that does not fit
std::unique_ptr<TextTokenizer> load_byte_pair_tokenizer(const std::string& vocabulary_path,
                                                        const std::string& merges_path);
/// The files of a byte-level BPE tokenizer in the form that load_byte_pair_tokenizer reads.
struct BytePairFiles {
  std::string vocabulary, merges;
};
/// Throws: DataError unless `tokenizer` is of kind "bpe"
BytePairFiles byte_pair_files(const TextTokenizer& tokenizer);

/// A SentencePiece model file with its own ids (Llama's tokenizer.model). A text is encoded in parts, each as
/// it is within a text and only the first with a space before it: a part ends behind "\n", or after 65,536
/// bytes without one (less what would cut a code point). The ids are those that SentencePiece gives the whole
/// text, lines longer than that excepted, and decode to it. A model that changes or drops white space, or has
/// longer pieces with "\n" in them, encodes texts whole, which takes some 200 bytes of memory for each of
/// text.
std::unique_ptr<TextTokenizer> load_sentencepiece_tokenizer(const std::string& path);
/// A SentencePiece BPE model with byte fallback and identity normalisation learnt from `text`; unknown 0,
/// begin 1, end 2, as Llama's. Of a long text it is learnt from every 2nd, 4th, ... line (lines over 4,192
/// bytes count as several), so many that their text and 32 bytes a line come to at most 32 MB. A text that
/// cannot fill the vocabulary gets a smaller one.
std::unique_ptr<TextTokenizer> train_sentencepiece_tokenizer(const TextSource& text, Index vocabulary_size);
/// The model file within. Throws: DataError unless `tokenizer` is of kind "sentencepiece"
std::string sentencepiece_model(const TextTokenizer& tokenizer);

}  // namespace tapeformer
