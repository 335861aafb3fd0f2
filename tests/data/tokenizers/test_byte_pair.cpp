#include <doctest/doctest.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/byte_pair_words.h>
#include <tapeformer/tests/data/tokenizers/byte_pair_golden.h>
#include <tapeformer/tests/reference/text.h>

#include <algorithm>
#include <thread>

using namespace tapeformer;

namespace {

const BytePairVocabulary& golden_vocabulary() {
  static const BytePairVocabulary vocabulary =
      parse_byte_pair_files(byte_pair_golden().vocabulary, "v", byte_pair_golden().merges, "m");
  return vocabulary;
}

const BytePairTokenizer& golden_tokenizer() {
  static const BytePairTokenizer tokenizer(golden_vocabulary());
  return tokenizer;
}

/// Merges the best pair of a word wherever it is, from left to right, then looks for the next: as published.
Ids merge_plainly(const BytePairVocabulary& vocabulary, std::string_view word) {
  Ids ids;
  for (const char byte : word) ids.push_back(vocabulary.bytes[static_cast<unsigned char>(byte)]);
  for (;;) {
    const BytePairMerge* best = nullptr;
    for (const BytePairMerge& merge : vocabulary.merges) {
      for (std::size_t i = 0; i + 1 < ids.size() && !best; ++i) {
        if (ids[i] == merge.left && ids[i + 1] == merge.right) best = &merge;
      }
      if (best) break;
    }
    if (!best) return ids;
    Ids merged;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool fits = i + 1 < ids.size() && ids[i] == best->left && ids[i + 1] == best->right;
      merged.push_back(fits ? best->result : ids[i]);
      if (fits) ++i;
    }
    ids = merged;
  }
}

std::string random_bytes(std::uint64_t seed, std::size_t most) {
  static const std::string common = "aaabet 'sn\n  =";
  std::string bytes;
  const std::uint64_t length = bounded(mix_bits(test_seed(seed), 1000), most);
  for (std::uint64_t i = 0; i < length; ++i) {
    const std::uint64_t bits = mix_bits(test_seed(seed), i);
    bytes += bits % 4 == 0 ? static_cast<char>(bits >> 8) : common[bounded(bits, common.size())];
  }
  return bytes;
}

}  // namespace

TEST_CASE("awkward text has the ids of the published tokenizers, and comes back") {
  REQUIRE(byte_pair_golden().cases.size() > 500);
  for (const BytePairGolden::Case& one : byte_pair_golden().cases) {
    CAPTURE(one.bytes);
    CHECK(golden_tokenizer().encode(one.bytes) == one.ids);
    CHECK(golden_tokenizer().decode(one.ids) == one.bytes);
  }
}

TEST_CASE("any bytes come back, and each word is merged as a plain loop merges it") {
  const BytePairTokenizer& tokenizer = golden_tokenizer();
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string bytes = random_bytes(seed, 200);
    const Ids ids = tokenizer.encode(bytes);
    REQUIRE(tokenizer.decode(ids) == bytes);
    Ids expected;
    for (std::string_view rest = bytes; !rest.empty(); rest.remove_prefix(word_length(rest))) {
      const Ids word = merge_plainly(golden_vocabulary(), rest.substr(0, word_length(rest)));
      expected.insert(expected.end(), word.begin(), word.end());
    }
    REQUIRE(ids == expected);
  }
}

TEST_CASE("words have the same ids each time") {
  std::vector<std::pair<std::string, Ids>> words;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    std::string word;
    for (std::uint64_t i = 0; i < 5 + seed % 30; ++i) word += "QXZJKV"[mix_bits(test_seed(seed), i) % 6];
    words.emplace_back(word, golden_tokenizer().encode(word));
  }
  for (int again = 0; again < 2; ++again) {
    for (const auto& [word, ids] : words) REQUIRE(golden_tokenizer().encode(word) == ids);
    for (const auto& [word, ids] : words) REQUIRE(golden_tokenizer().decode(ids) == word);
  }
}

TEST_CASE("long words are merged as short ones are") {
  const BytePairTokenizer& tokenizer = golden_tokenizer();
  for (std::size_t length = 1; length < 120; ++length) {
    for (const std::string unit : {"a", "merge", "的", "aab", "="}) {
      std::string word;
      while (word.size() < length) word += unit;
      CAPTURE(word);
      REQUIRE(tokenizer.encode(word) == merge_plainly(golden_vocabulary(), word));
    }
  }
}

TEST_CASE("the end of a text is a token that no text has") {
  const BytePairTokenizer& tokenizer = golden_tokenizer();
  CHECK(tokenizer.vocabulary_size() == 657);
  CHECK(tokenizer.end() == 656);
  CHECK_FALSE(tokenizer.begin());
  CHECK(tokenizer.bytes_of(656).empty());
  CHECK(tokenizer.decode({64, 656, 65}) == "ab");
  const Ids spelt = tokenizer.encode("<|endoftext|>");
  CHECK(std::find(spelt.begin(), spelt.end(), 656) == spelt.end());
  CHECK(tokenizer.decode(spelt) == "<|endoftext|>");
}

TEST_CASE("a token that its own merges do not produce does not match its word") {
  // b c is merged first, so abc is a, bc: the token abc, from ab and c, is never made.
  BytePairVocabulary vocabulary;
  const auto order = byte_pair_order();
  for (std::size_t i = 0; i < 256; ++i) vocabulary.bytes[order[i]] = static_cast<std::int32_t>(i);
  const auto id = [&](char c) { return vocabulary.bytes[static_cast<unsigned char>(c)]; };
  vocabulary.merges = {{id('b'), id('c'), 256}, {id('a'), id('b'), 257}, {257, id('c'), 258}};
  const BytePairTokenizer tokenizer(vocabulary);
  CHECK(tokenizer.encode("abc") == Ids{id('a'), 256});
  CHECK(tokenizer.encode("ab") == Ids{257});
  CHECK_FALSE(tokenizer.end());
  CHECK(tokenizer.vocabulary_size() == 259);
  vocabulary.merges.push_back({id('a'), 256, 259});  // its text is 258's
  CHECK(BytePairTokenizer(vocabulary).encode("abc") == Ids{259});
}

TEST_CASE("threads may share a tokenizer") {
  const Ids expected = golden_tokenizer().encode(byte_pair_golden().text);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) ids = golden_tokenizer().encode(byte_pair_golden().text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : found) CHECK(ids == expected);
}
