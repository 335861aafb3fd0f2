#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/byte_pair_merges.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace tapeformer {
namespace {

constexpr std::size_t kFew = 48;  // more tokens are merged with a queue
constexpr std::uint64_t kNoParts = ~std::uint64_t{0};
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};

std::uint64_t parts_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

BytePairMerges::BytePairMerges(std::vector<BytePairMerge> list) : list_(std::move(list)) {
  std::size_t size = 2;
  while (size < 2 * list_.size()) size *= 2;
  pairs_.resize(size, {kNoParts, kNoRank});
  for (std::uint32_t rank = 0; rank < list_.size(); ++rank) {
    const std::uint64_t parts = parts_of(list_[rank].left, list_[rank].right);
    pairs_[slot(parts)] = {parts, rank};
  }
}

/// The slot of a pair, or the empty slot where it belongs.
std::size_t BytePairMerges::slot(std::uint64_t parts) const {
  const std::size_t mask = pairs_.size() - 1;
  std::size_t at = mix_bits(parts) & mask;
  while (pairs_[at].parts != parts && pairs_[at].parts != kNoParts) at = (at + 1) & mask;
  return at;
}

std::uint32_t BytePairMerges::rank_of(std::int32_t left, std::int32_t right) const {
  return pairs_[slot(parts_of(left, right))].rank;
}

void BytePairMerges::apply(std::int32_t* tokens, std::size_t count, std::vector<std::int32_t>& ids) const {
  count <= kFew ? apply_to_few(tokens, count, ids) : apply_to_many(tokens, count, ids);
}

/// Searches all pairs for every merge.
void BytePairMerges::apply_to_few(std::int32_t* tokens, std::size_t count,
                                  std::vector<std::int32_t>& ids) const {
  std::uint32_t ranks[kFew];  // of a token and the next one
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(tokens[i], tokens[i + 1]);
  while (count > 1) {
    const auto i = static_cast<std::size_t>(std::min_element(ranks, ranks + count - 1) - ranks);
    if (ranks[i] == kNoRank) break;
    tokens[i] = list_[ranks[i]].result;
    std::copy(tokens + i + 2, tokens + count, tokens + i + 1);
    std::copy(ranks + i + 1, ranks + count - 1, ranks + i);
    --count;
    if (i > 0) ranks[i - 1] = rank_of(tokens[i - 1], tokens[i]);
    if (i + 1 < count) ranks[i] = rank_of(tokens[i], tokens[i + 1]);
  }
  ids.insert(ids.end(), tokens, tokens + count);
}

/// Keeps the pairs in a queue and the tokens in a linked list.
void BytePairMerges::apply_to_many(const std::int32_t* tokens, std::size_t count,
                                   std::vector<std::int32_t>& ids) const {
  struct Part {
    std::int32_t id;            // -1 once it is part of the one before
    std::size_t before, after;  // `count` where there is none
  };
  // Rank and left part: the leftmost of equal pairs first.
  using Entry = std::pair<std::uint32_t, std::size_t>;
  std::vector<Part> parts;
  parts.reserve(count);
  std::vector<Entry> entries;
  entries.reserve(count);
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue(std::greater<>(), std::move(entries));
  const auto rank_at = [&](std::size_t i) {
    const bool is_pair = parts[i].id >= 0 && parts[i].after != count;
    return is_pair ? rank_of(parts[i].id, parts[parts[i].after].id) : kNoRank;
  };
  const auto enqueue = [&](std::size_t i) {
    const std::uint32_t rank = rank_at(i);
    if (rank != kNoRank) queue.emplace(rank, i);
  };
  for (std::size_t i = 0; i < count; ++i) parts.push_back({tokens[i], i == 0 ? count : i - 1, i + 1});
  for (std::size_t i = 0; i < count; ++i) enqueue(i);
  while (!queue.empty()) {
    const auto [rank, i] = queue.top();
    queue.pop();
    if (rank_at(i) != rank) continue;  // one of its parts has been merged since
    Part &part = parts[i], &next = parts[part.after];
    part.id = list_[rank].result;
    part.after = next.after;
    next.id = -1;
    if (part.after != count) {
      parts[part.after].before = i;
      enqueue(i);
    }
    if (part.before != count) enqueue(part.before);
  }
  for (std::size_t i = 0; i != count; i = parts[i].after) ids.push_back(parts[i].id);
}

}  // namespace tapeformer
