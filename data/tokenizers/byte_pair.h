#pragma once

#include <tapeformer/data/tokenizers/byte_pair_merges.h>
#include <tapeformer/data/tokenizers/tokenizer.h>

#include <array>
#include <mutex>
#include <unordered_map>

namespace tapeformer {

/// The data of byte-level pair encoding.
struct BytePairVocabulary {
  std::array<std::int32_t, 256> bytes{};  ///< the token of each byte
  std::vector<BytePairMerge> merges;      ///< by priority; tokens are made before they are parts of others
  std::vector<std::pair<std::int32_t, std::string>> controls;  ///< by id; tokens that no text is encoded to
};

/// The control token that ends a document.
constexpr const char* kEndOfText = "<|endoftext|>";

/// The characters that represent bytes in GPT-2's files: the one of the same code if it is printable and not
/// a space, else one from U+0100 on.
std::string byte_pair_characters(std::string_view bytes);

/// The bytes in the order of their ids in GPT-2: those that represent themselves come first.
std::array<unsigned char, 256> byte_pair_order();

/// Parses GPT-2's two files. Throws: DataError naming the file and the entry that does not fit
BytePairVocabulary parse_byte_pair_files(const std::string& vocabulary, const std::string& vocabulary_name,
                                         const std::string& merges, const std::string& merges_name);

/// Trains merges; see train_byte_pair_tokenizer.
BytePairVocabulary learn_byte_pairs(const TextSource& text, Index vocabulary_size);

/// GPT-2's byte-level pair encoding with merges trained on `text`: ids 0 to 255 are the bytes in GPT-2's
/// order, then one id for each merge, then "<|endoftext|>". Of pairs that occur equally often, the
/// lexicographically greatest (by its two byte strings) is merged first. Merging stops early when no pair
/// occurs twice.
/// Throws:  DataError unless vocabulary_size >= 257
std::unique_ptr<Tokenizer> train_byte_pair_tokenizer(const TextSource& text, Index vocabulary_size);

/// Reads GPT-2's published files: tokens and ids as JSON (encoder.json, vocab.json), and merges (vocab.bpe,
/// merges.txt).
/// Throws:  DataError naming the file and the entry that does not fit
std::unique_ptr<Tokenizer> load_byte_pair_tokenizer(const std::string& vocabulary_path,
                                                    const std::string& merges_path);
/// The contents of the two files that load_byte_pair_tokenizer reads.
struct BytePairFiles {
  /// The contents of vocab.json and of merges.txt.
  std::string vocabulary, merges;
};
/// The files of a tokenizer. Throws: DataError unless it is of kind "bpe"
BytePairFiles byte_pair_files(const Tokenizer& tokenizer);
TokenizerKind text_byte_pairs();

/// GPT-2's byte-level pair encoding.
class BytePairTokenizer : public Tokenizer {
 public:
  /// The ids of `vocabulary` must be 0, 1, ... without gaps.
  explicit BytePairTokenizer(BytePairVocabulary vocabulary);

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  using Tokenizer::encode;
  std::string bytes_of(std::int32_t id) const override;
  std::string piece(std::int32_t id) const override;
  Index vocabulary_size() const override { return static_cast<Index>(tokens_.size()); }
  std::optional<std::int32_t> end() const override { return end_; }
  std::optional<std::int32_t> find(const std::string& token) const override;
  std::size_t safe_cut(std::string_view text) const override;
  const char* kind() const override { return "bpe"; }
  std::string serialize() const override;

  /// The contents of GPT-2's two files for this vocabulary.
  BytePairFiles files() const;

 private:
  /// A word that has been encoded, with its ids, in one cache line.
  struct SeenWord {
    static constexpr std::size_t kMostBytes = 30, kMostIds = 8;
    char bytes[kMostBytes];
    std::uint8_t size = 0, count = 0;
    std::int32_t ids[kMostIds];
  };

  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  void encode_seen_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  BytePairVocabulary vocabulary_;  // without its merges
  BytePairMerges merges_;
  std::vector<std::string> tokens_;                           // bytes by id; empty for controls
  std::unordered_map<std::string_view, std::int32_t> words_;  // tokens to which their own bytes merge
  std::optional<std::int32_t> end_;
  mutable std::vector<SeenWord> seen_;  // by hash; each slot keeps its latest word
  mutable std::mutex seen_mutex_;       // a thread that finds it locked works without the cache
};

}  // namespace tapeformer
