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

/// A tokenizer for language models: text of any length to token ids, as a stream, and back. Every id is one
/// that the model predicts, and nothing is unknown: text that the vocabulary does not cover is an error.
/// (For translation, where ids are reserved and a sentence may hold unknown words, see TranslationTokenizer.)
/// Thread-safe once made.
class TextTokenizer {
 public:
  virtual ~TextTokenizer() = default;

  /// Appends the ids of `text` to `ids`. Byte-level kinds take any bytes, the others valid UTF-8.
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
  /// The bytes of `ids`, without the space that some kinds put before the first word.
  virtual std::string decode(const std::vector<std::int32_t>& ids) const;
  /// The number of ids.
  virtual Index vocabulary_size() const = 0;
  /// The token that a document begins with, in kinds that have it.
  virtual std::optional<std::int32_t> begin() const { return {}; }
  /// The token that a document ends with, in kinds that have it.
  virtual std::optional<std::int32_t> end() const { return {}; }
  /// The ids at which a generated text ends.
  virtual std::vector<std::int32_t> ends() const;
  /// The id of a control token, or an added one, by its name: "</s>".
  virtual std::optional<std::int32_t> find(const std::string& /*token*/) const { return {}; }
  /// The length of the longest prefix of `text` that can be encoded by itself, whatever follows; 0 if none.
  /// A stream can thus be encoded in pieces, the first by `encode` and the others by `encode_rest`, to the
  /// ids of the whole.
  virtual std::size_t safe_cut(std::string_view text) const = 0;
  /// Like `encode`, for text after a prefix that `safe_cut` allowed.
  virtual void encode_rest(std::string_view text, std::vector<std::int32_t>& ids) const { encode(text, ids); }
  /// The tokenizer that others' controls were given to; see text_tokenizer_controls.h.
  virtual const TextTokenizer& plain() const { return *this; }
  /// "character", "byte", "bpe", "sentencepiece" or "tokenizer_json".
  virtual const char* kind() const = 0;
  /// The whole tokenizer as the content of one file: write_tokenizer_file(kind(), payload).
  virtual std::string serialize() const = 0;
};

/// The inverse of `serialize`; errors call the file `name`. Throws: DataError if `content` is anything else
std::unique_ptr<TextTokenizer> parse_text_tokenizer(std::string_view content, const std::string& name);
std::unique_ptr<TextTokenizer> load_text_tokenizer(const std::string& path);

/// Passes the text of a corpus to `reader`, piece by piece and in order. Can be called more than once.
/// Pieces end between code points.
using TextSource = std::function<void(const std::function<void(std::string_view piece)>& reader)>;

/// One token for every code point that occurs, in the order of code points.
std::unique_ptr<TextTokenizer> train_character_tokenizer(const TextSource& text);

/// One id for each of the 256 bytes.
std::unique_ptr<TextTokenizer> make_byte_tokenizer();

/// GPT-2's byte-level pair encoding with merges trained on `text`: ids 0 to 255 are the bytes in GPT-2's
/// order, then one id for each merge, then "<|endoftext|>". Of pairs that occur equally often the
/// lexicographically greater one (by its two byte strings) is merged first. There are fewer merges if no
/// pair occurs twice.
/// Throws:  DataError unless vocabulary_size >= 257
std::unique_ptr<TextTokenizer> train_byte_pair_tokenizer(const TextSource& text, Index vocabulary_size);

/// Reads GPT-2's published files: tokens and ids as JSON (encoder.json, vocab.json), and merges (vocab.bpe,
/// merges.txt).
/// Throws:  DataError naming the file and the entry that does not fit
std::unique_ptr<TextTokenizer> load_byte_pair_tokenizer(const std::string& vocabulary_path,
                                                        const std::string& merges_path);
/// The contents of the two files that load_byte_pair_tokenizer reads.
struct BytePairFiles {
  /// The contents of vocab.json and of merges.txt.
  std::string vocabulary, merges;
};
/// Throws: DataError unless `tokenizer` is of kind "bpe"
BytePairFiles byte_pair_files(const TextTokenizer& tokenizer);

/// A tokenizer.json of Hugging Face's tokenizers: BPE, Unigram or WordPiece with the usual normalisers,
/// pre-tokenizers, decoders and added tokens, which are found in every text. The ids are those of the
/// package's encode(text, add_special_tokens=False); begin() and end() are what its template adds. A text is
/// encoded as a whole.
/// Throws:  DataError naming the part that is not supported
std::unique_ptr<TextTokenizer> load_tokenizer_json(const std::string& path);

/// A SentencePiece model file with its own ids (Llama's tokenizer.model). A text is encoded in parts that
/// end after "\n", or after 65,536 bytes without one (or a little before, between code points); only the
/// first has a space put before it. The ids are those that SentencePiece gives the whole text, except in
/// longer lines, and decode to it. A model that changes or drops white space, or has longer pieces that
/// contain "\n", encodes texts whole, which takes about 200 bytes of memory for each byte of text.
std::unique_ptr<TextTokenizer> load_sentencepiece_tokenizer(const std::string& path);
/// A SentencePiece BPE model with byte fallback and identity normalisation, trained on `text`; unknown is 0,
/// begin 1 and end 2, as in Llama's. Of a long text every 2nd, 4th, ... line is used, so that their bytes
/// and 32 more for each line come to at most 32 MB; lines over 4,192 bytes count as several. A text that
/// cannot fill the vocabulary gets a smaller one.
std::unique_ptr<TextTokenizer> train_sentencepiece_tokenizer(const TextSource& text, Index vocabulary_size);
/// The content of its model file. Throws: DataError unless `tokenizer` is of kind "sentencepiece"
std::string sentencepiece_model(const TextTokenizer& tokenizer);

}  // namespace tapeformer
