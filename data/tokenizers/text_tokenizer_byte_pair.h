#pragma once

#include <tapeformer/data/tokenizers/text_tokenizer.h>

#include <array>
#include <mutex>

namespace tapeformer {

/// Two tokens that become one.
struct BytePairMerge {
  std::int32_t left, right, result;
};

/// What byte-level pair encoding needs to know.
struct BytePairVocabulary {
  std::array<std::int32_t, 256> bytes{};  // the token of each byte
  std::vector<BytePairMerge> merges;  // the first one that fits is made first; parts come before their merges
  std::vector<std::pair<std::int32_t, std::string>> controls;  // tokens that no text has
};

/// What ends a document.
constexpr const char* kEndOfText = "<|endoftext|>";

/// What stands for a byte in GPT-2's files: itself where it can be seen, else a character from U+0100 on.
std::string byte_pair_character(unsigned char byte);

/// The bytes in the order of their ids: those that can be seen come first.
std::array<unsigned char, 256> byte_pair_order();

/// Throws:  DataError naming the file and the entry that does not fit
BytePairVocabulary parse_byte_pair_files(const std::string& vocabulary, const std::string& vocabulary_name,
                                         const std::string& merges, const std::string& merges_name);

/// Learns merges; see train_byte_pair_tokenizer.
BytePairVocabulary learn_byte_pairs(const TextSource& text, Index vocabulary_size);

/// GPT-2's byte-level pair encoding.
class BytePairTokenizer : public TextTokenizer {
 public:
  /// The ids of `vocabulary` are 0 to their number - 1.
  explicit BytePairTokenizer(BytePairVocabulary vocabulary);

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  using TextTokenizer::encode;
  std::string bytes_of(std::int32_t id) const override;
  Index vocabulary_size() const override { return static_cast<Index>(tokens_.size()); }
  std::optional<std::int32_t> end() const override { return end_; }
  std::size_t safe_cut(std::string_view text) const override;
  const char* kind() const override { return "bpe"; }
  std::string serialize() const override;

  BytePairFiles files() const;

 private:
  /// The place of a merge in their order, by its parts.
  struct Pair {
    std::uint64_t parts;
    std::uint32_t rank;
  };

  /// A word that has been seen, with its ids; a cache line.
  struct SeenWord {
    static constexpr std::size_t kMostBytes = 30, kMostIds = 8;
    char bytes[kMostBytes];
    std::uint8_t size = 0, count = 0;
    std::int32_t ids[kMostIds];
  };

  std::uint32_t find_pair(std::int32_t left, std::int32_t right) const;
  std::int32_t find_word(std::string_view word) const;
  void add_pair(std::uint32_t rank);
  void add_word(std::int32_t id);
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  void encode_seen_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_long(std::string_view word, std::vector<std::int32_t>& ids) const;

  BytePairVocabulary vocabulary_;
  std::vector<std::string> tokens_;  // bytes by id; none for controls
  // Hash tables with open addressing, their sizes powers of two.
  std::vector<Pair> pairs_;
  std::vector<std::int32_t>
      words_;  // tokens that are what merging makes of their bytes; -1 where there is none
  std::optional<std::int32_t> end_;
  mutable std::vector<SeenWord> seen_;  // by hash; each place keeps the last word that came there
  mutable std::mutex seen_mutex_;       // whoever finds it taken works without
};

}  // namespace tapeformer
