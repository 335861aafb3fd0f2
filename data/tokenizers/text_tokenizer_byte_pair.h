#pragma once

#include <tapeformer/data/tokenizers/text_tokenizer.h>

#include <array>
#include <mutex>

namespace tapeformer {

/// Two tokens that become one.
struct BytePairMerge {
  std::int32_t left, right, result;
};

/// The data of byte-level pair encoding.
struct BytePairVocabulary {
  std::array<std::int32_t, 256> bytes{};  // the token of each byte
  std::vector<BytePairMerge> merges;      // in order of priority; parts come before their merges
  std::vector<std::pair<std::int32_t, std::string>> controls;  // tokens that no text contains
};

/// The control token that ends a document.
constexpr const char* kEndOfText = "<|endoftext|>";

/// The character that represents a byte in GPT-2's files: itself if it is printable, else one from U+0100 on.
std::string byte_pair_character(unsigned char byte);

/// The bytes in the order of their ids: printable ones come first.
std::array<unsigned char, 256> byte_pair_order();

/// Throws:  DataError naming the file and the entry that does not fit
BytePairVocabulary parse_byte_pair_files(const std::string& vocabulary, const std::string& vocabulary_name,
                                         const std::string& merges, const std::string& merges_name);

/// Trains merges; see train_byte_pair_tokenizer.
BytePairVocabulary learn_byte_pairs(const TextSource& text, Index vocabulary_size);

/// GPT-2's byte-level pair encoding.
class BytePairTokenizer : public TextTokenizer {
 public:
  /// The ids of `vocabulary` must be 0, 1, ... without gaps.
  explicit BytePairTokenizer(BytePairVocabulary vocabulary);

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  using TextTokenizer::encode;
  std::string bytes_of(std::int32_t id) const override;
  Index vocabulary_size() const override { return static_cast<Index>(tokens_.size()); }
  std::optional<std::int32_t> end() const override { return end_; }
  std::optional<std::int32_t> find(const std::string& token) const override;
  std::size_t safe_cut(std::string_view text) const override;
  const char* kind() const override { return "bpe"; }
  std::string serialize() const override;

  BytePairFiles files() const;

 private:
  /// A merge's rank, by its parts.
  struct Pair {
    std::uint64_t parts;
    std::uint32_t rank;
  };

  /// A word that has been encoded, with its ids; the size of a cache line.
  struct SeenWord {
    static constexpr std::size_t kMostBytes = 30, kMostIds = 8;
    char bytes[kMostBytes];
    std::uint8_t size = 0, count = 0;
    std::int32_t ids[kMostIds];
  };

  /// The slot of an entry, or the empty one where it belongs.
  std::size_t pair_slot(std::uint64_t parts) const;
  std::size_t word_slot(std::string_view word) const;
  std::uint32_t find_pair(std::int32_t left, std::int32_t right) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  void encode_seen_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_long(std::string_view word, std::vector<std::int32_t>& ids) const;

  BytePairVocabulary vocabulary_;
  std::vector<std::string> tokens_;  // bytes by id; empty for controls
  // Hash tables with open addressing, of sizes that are powers of two.
  std::vector<Pair> pairs_;
  std::vector<std::int32_t> words_;  // tokens that their bytes merge to; -1 for an empty slot
  std::optional<std::int32_t> end_;
  mutable std::vector<SeenWord> seen_;  // by hash; each slot keeps its latest word
  mutable std::mutex seen_mutex_;       // a thread that finds it locked works without the cache
};

}  // namespace tapeformer
