#include <tapeformer/autograd/error.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/byte_pair_words.h>
#include <tapeformer/data/tokenizers/text_tokenizer_byte_pair.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

#include <algorithm>
#include <cstring>
#include <queue>

namespace tapeformer {
namespace {

constexpr std::size_t kShort = 48;  // bytes; longer words are merged with a queue
constexpr std::size_t kSeenWords = 1 << 15;
constexpr std::uint64_t kNoParts = ~std::uint64_t{0};
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};

std::uint64_t parts_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

/// Up to eight bytes as a number.
std::uint64_t read_bytes(const char* bytes, std::size_t count) {
  const auto at = [&](std::size_t i) {
    return static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i]));
  };
  if (count < 4) return count == 0 ? 0 : at(0) | at(count / 2) << 8 | at(count - 1) << 16;
  std::uint32_t low, high;
  std::memcpy(&low, bytes, 4);
  std::memcpy(&high, bytes + count - 4, 4);
  return low | std::uint64_t{high} << 32;
}

/// The hash never leaves the process, so it may depend on the byte order of the machine.
std::uint64_t hash_word(std::string_view word) {
  std::uint64_t hash = word.size();
  for (; word.size() > 8; word.remove_prefix(8)) hash = mix_bits(hash ^ read_bytes(word.data(), 8));
  return mix_bits(hash ^ read_bytes(word.data(), word.size()));
}

std::size_t table_size(std::size_t entries) {
  std::size_t size = 2;
  while (size < 2 * entries) size *= 2;
  return size;
}

}  // namespace

BytePairTokenizer::BytePairTokenizer(BytePairVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  const std::vector<BytePairMerge>& merges = vocabulary_.merges;
  std::int32_t highest = 255;
  for (const BytePairMerge& merge : merges) highest = std::max(highest, merge.result);
  for (const auto& [id, name] : vocabulary_.controls) highest = std::max(highest, id);
  tokens_.resize(static_cast<std::size_t>(highest) + 1);
  const auto token = [&](std::int32_t id) -> std::string& { return tokens_[static_cast<std::size_t>(id)]; };

  for (std::size_t byte = 0; byte < 256; ++byte) token(vocabulary_.bytes[byte]) = static_cast<char>(byte);
  pairs_.resize(table_size(merges.size()), {kNoParts, kNoRank});
  for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
    token(merges[rank].result) = token(merges[rank].left) + token(merges[rank].right);
    const std::uint64_t parts = parts_of(merges[rank].left, merges[rank].right);
    pairs_[pair_slot(parts)] = {parts, rank};
  }
  words_.resize(table_size(tokens_.size()), -1);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id <= highest; ++id) {
    if (token(id).empty()) continue;
    ids.clear();
    encode_word(token(id), ids);  // not in words_ yet, so it is merged
    if (ids.size() == 1) words_[word_slot(token(id))] = id;
  }
  end_ = find(kEndOfText);
  seen_.resize(kSeenWords);
}

std::size_t BytePairTokenizer::pair_slot(std::uint64_t parts) const {
  const std::size_t mask = pairs_.size() - 1;
  std::size_t slot = mix_bits(parts) & mask;
  while (pairs_[slot].parts != parts && pairs_[slot].parts != kNoParts) slot = (slot + 1) & mask;
  return slot;
}

std::uint32_t BytePairTokenizer::find_pair(std::int32_t left, std::int32_t right) const {
  return pairs_[pair_slot(parts_of(left, right))].rank;
}

std::size_t BytePairTokenizer::word_slot(std::string_view word) const {
  const std::size_t mask = words_.size() - 1;
  std::size_t slot = hash_word(word) & mask;
  while (words_[slot] >= 0 && tokens_[static_cast<std::size_t>(words_[slot])] != word)
    slot = (slot + 1) & mask;
  return slot;
}

void BytePairTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::unique_lock lock(seen_mutex_, std::try_to_lock);
  while (!text.empty()) {
    const std::size_t length = word_length(text);
    if (lock) {
      encode_seen_word(text.substr(0, length), ids);
    } else {
      encode_word(text.substr(0, length), ids);
    }
    text.remove_prefix(length);
  }
}

void BytePairTokenizer::encode_seen_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() > SeenWord::kMostBytes) return encode_word(word, ids);
  SeenWord& seen = seen_[hash_word(word) & (seen_.size() - 1)];
  if (std::string_view(seen.bytes, seen.size) != word) {
    const std::size_t before = ids.size();
    encode_word(word, ids);
    if (ids.size() - before > SeenWord::kMostIds) return;
    seen.size = static_cast<std::uint8_t>(word.copy(seen.bytes, word.size()));
    seen.count = static_cast<std::uint8_t>(ids.size() - before);
    std::copy(ids.end() - seen.count, ids.end(), seen.ids);
    return;
  }
  ids.insert(ids.end(), seen.ids, seen.ids + seen.count);
}

void BytePairTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::int32_t whole = words_[word_slot(word)];
  if (whole >= 0) {
    ids.push_back(whole);
  } else if (word.size() <= kShort) {
    merge_short(word, ids);
  } else {
    merge_long(word, ids);
  }
}

/// Searches all pairs for every merge.
void BytePairTokenizer::merge_short(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::int32_t parts[kShort];
  std::uint32_t ranks[kShort];  // the rank of a part and the next one
  std::size_t count = word.size();
  for (std::size_t i = 0; i < count; ++i) parts[i] = vocabulary_.bytes[static_cast<unsigned char>(word[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = find_pair(parts[i], parts[i + 1]);
  while (count > 1) {
    const auto i = static_cast<std::size_t>(std::min_element(ranks, ranks + count - 1) - ranks);
    if (ranks[i] == kNoRank) break;
    parts[i] = vocabulary_.merges[ranks[i]].result;
    std::copy(parts + i + 2, parts + count, parts + i + 1);
    std::copy(ranks + i + 1, ranks + count - 1, ranks + i);
    --count;
    if (i > 0) ranks[i - 1] = find_pair(parts[i - 1], parts[i]);
    if (i + 1 < count) ranks[i] = find_pair(parts[i], parts[i + 1]);
  }
  ids.insert(ids.end(), parts, parts + count);
}

/// Keeps the pairs in a queue and the parts in a linked list.
void BytePairTokenizer::merge_long(std::string_view word, std::vector<std::int32_t>& ids) const {
  struct Part {
    std::int32_t id;            // -1 once it is part of the one before
    std::size_t before, after;  // the word's size where there is none
  };
  const std::size_t none = word.size();
  std::vector<Part> parts(word.size());
  using Entry =
      std::pair<std::uint32_t, std::size_t>;  // rank and left part: the leftmost of equal pairs first
  std::vector<Entry> entries;
  entries.reserve(word.size());
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue(std::greater<>(), std::move(entries));
  const auto rank_at = [&](std::size_t i) {
    return parts[i].id < 0 || parts[i].after == none ? kNoRank
                                                     : find_pair(parts[i].id, parts[parts[i].after].id);
  };
  const auto enqueue = [&](std::size_t i) {
    const std::uint32_t rank = rank_at(i);
    if (rank != kNoRank) queue.emplace(rank, i);
  };
  for (std::size_t i = 0; i < word.size(); ++i) {
    parts[i] = {vocabulary_.bytes[static_cast<unsigned char>(word[i])], i == 0 ? none : i - 1, i + 1};
  }
  for (std::size_t i = 0; i < word.size(); ++i) enqueue(i);
  while (!queue.empty()) {
    const auto [rank, i] = queue.top();
    queue.pop();
    if (rank_at(i) != rank) continue;  // one of its parts has been merged since
    Part& part = parts[i];
    Part& next = parts[part.after];
    part.id = vocabulary_.merges[rank].result;
    part.after = next.after;
    next.id = -1;
    if (part.after != none) {
      parts[part.after].before = i;
      enqueue(i);
    }
    if (part.before != none) enqueue(part.before);
  }
  for (std::size_t i = 0; i != none; i = parts[i].after) ids.push_back(parts[i].id);
}

std::string BytePairTokenizer::bytes_of(std::int32_t id) const {
  check_token(id, vocabulary_size());
  return tokens_[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> BytePairTokenizer::find(const std::string& token) const {
  for (const auto& [id, name] : vocabulary_.controls)
    if (name == token) return id;
  return {};
}

std::size_t BytePairTokenizer::safe_cut(std::string_view text) const { return safe_word_cut(text); }

}  // namespace tapeformer
