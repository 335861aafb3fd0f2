#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/byte_pair_words.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

#include <algorithm>
#include <cstring>

namespace tapeformer {
namespace {

constexpr std::size_t kSeenWords = 1 << 15;

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

}  // namespace

BytePairTokenizer::BytePairTokenizer(BytePairVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(vocabulary_.merges)) {
  std::int32_t highest = *std::max_element(vocabulary_.bytes.begin(), vocabulary_.bytes.end());
  for (const BytePairMerge& merge : merges_.list()) highest = std::max(highest, merge.result);
  for (const auto& [id, name] : vocabulary_.controls) highest = std::max(highest, id);
  tokens_.resize(static_cast<std::size_t>(highest) + 1);
  const auto token = [&](std::int32_t id) -> std::string& { return tokens_[static_cast<std::size_t>(id)]; };

  for (std::size_t byte = 0; byte < 256; ++byte) token(vocabulary_.bytes[byte]) = static_cast<char>(byte);
  for (const BytePairMerge& merge : merges_.list())
    token(merge.result) = token(merge.left) + token(merge.right);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id <= highest; ++id) {
    if (token(id).empty()) continue;
    ids.clear();
    encode_word(token(id), ids);  // by merges, as it is not yet in words_
    if (ids.size() == 1) words_[token(id)] = id;
  }
  end_ = find(kEndOfText);
  seen_.resize(kSeenWords);
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
  if (const auto whole = words_.find(word); whole != words_.end()) return ids.push_back(whole->second);
  std::int32_t few[64];
  std::vector<std::int32_t> many(word.size() > std::size(few) ? word.size() : 0);
  std::int32_t* const tokens = many.empty() ? few : many.data();
  for (std::size_t i = 0; i < word.size(); ++i)
    tokens[i] = vocabulary_.bytes[static_cast<unsigned char>(word[i])];
  merges_.apply(tokens, word.size(), ids);
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
