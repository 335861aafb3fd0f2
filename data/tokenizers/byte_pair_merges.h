#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapeformer {

/// Two tokens that become one.
struct BytePairMerge {
  std::int32_t left, right, result;
};

/// The merges of byte-pair encoding: the earliest in the list is applied first, at its leftmost place.
class BytePairMerges {
 public:
  /// The last of several merges with the same parts counts, as in the tokenizers package.
  explicit BytePairMerges(std::vector<BytePairMerge> list);

  const std::vector<BytePairMerge>& list() const { return list_; }
  /// Merges `count` tokens, which are overwritten, and appends the result to `ids`.
  void apply(std::int32_t* tokens, std::size_t count, std::vector<std::int32_t>& ids) const;

 private:
  /// A merge's rank, by its parts.
  struct Pair {
    std::uint64_t parts;
    std::uint32_t rank;
  };

  std::size_t slot(std::uint64_t parts) const;
  std::uint32_t rank_of(std::int32_t left, std::int32_t right) const;
  void apply_to_few(std::int32_t* tokens, std::size_t count, std::vector<std::int32_t>& ids) const;
  void apply_to_many(const std::int32_t* tokens, std::size_t count, std::vector<std::int32_t>& ids) const;

  std::vector<BytePairMerge> list_;
  std::vector<Pair> pairs_;  // a hash table with open addressing, of a size that is a power of two
};

}  // namespace tapeformer
