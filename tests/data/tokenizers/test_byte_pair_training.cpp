#include <doctest/doctest.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/byte_pair_words.h>
#include <tapeformer/tests/data/tokenizers/byte_pair_golden.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/reference/support.h>
#include <nlohmann/json.hpp>

#include <map>

using namespace tapeformer;

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs merges_of(const BytePairVocabulary& vocabulary) {
  std::vector<std::string> tokens(256);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    tokens[static_cast<std::size_t>(vocabulary.bytes[byte])] = static_cast<char>(byte);
  }
  Pairs merges;
  for (const BytePairMerge& merge : vocabulary.merges) {
    REQUIRE(merge.result == static_cast<std::int32_t>(tokens.size()));
    merges.emplace_back(tokens[static_cast<std::size_t>(merge.left)],
                        tokens[static_cast<std::size_t>(merge.right)]);
    tokens.push_back(merges.back().first + merges.back().second);
  }
  return merges;
}

/// Counts every pair again for every merge.
Pairs learn_plainly(const std::string& text, std::size_t most) {
  std::vector<std::vector<std::string>> words;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(word_length(rest))) {
    words.emplace_back();
    for (const char byte : rest.substr(0, word_length(rest))) words.back().emplace_back(1, byte);
  }
  Pairs merges;
  while (merges.size() < most) {
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    auto best = counts.end();
    for (auto pair = counts.begin(); pair != counts.end();
         ++pair) {  // in ascending order, so the last one wins
      if (best == counts.end() || pair->second >= best->second) best = pair;
    }
    if (best == counts.end() || best->second < 2) break;
    const auto [left, right] = best->first;
    merges.push_back(best->first);
    for (auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != left || word[i + 1] != right) continue;
        word[i] += right;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return merges;
}

}  // namespace

TEST_CASE("the merges are those of a plain trainer") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::string text;
    const std::string letters = seed % 3 == 0 ? "ab" : seed % 3 == 1 ? "aab c\xc3\xa9" : "abcdefg  \n'st";
    for (std::uint64_t i = 0; i < 20 + 10 * seed; ++i)
      text += letters[bounded(mix_bits(test_seed(seed), i), letters.size())];
    CAPTURE(text);
    REQUIRE(merges_of(learn_byte_pairs(in_pieces(text, 1000), 317)) == learn_plainly(text, 60));
  }
  CHECK(merges_of(learn_byte_pairs(in_pieces(std::string(1000, 'a'), 1000), 400)) ==
        learn_plainly(std::string(1000, 'a'), 143));
}

TEST_CASE("the merges are those of the Python trainer, and its files those of the published form") {
  const BytePairGolden& golden = byte_pair_golden();
  const auto tokenizer = train_byte_pair_tokenizer(in_pieces(golden.text, 1 << 20), 657);
  const BytePairFiles files = byte_pair_files(*tokenizer);
  CHECK(files.merges == golden.merges);
  CHECK(nlohmann::json::parse(files.vocabulary) == nlohmann::json::parse(golden.vocabulary));
}

TEST_CASE("the pieces in which the text comes do not matter") {
  std::string text;
  for (int i = 0; i < 200; ++i) text += byte_pair_golden().text.substr(0, 800) + std::string(i % 3, '\n');
  const std::string whole = train_byte_pair_tokenizer(in_pieces(text, text.size()), 400)->serialize();
  for (const std::size_t size : {1000, 65536, 99991}) {
    CHECK(train_byte_pair_tokenizer(in_pieces(text, size), 400)->serialize() == whole);
  }
}

TEST_CASE("fewer merges are learnt if no pair is left that occurs twice") {
  const auto tokenizer = train_byte_pair_tokenizer(in_pieces("abcd", 4), 1000);
  CHECK(tokenizer->vocabulary_size() == 257);
  CHECK(tokenizer->end() == 256);
  CHECK(train_byte_pair_tokenizer(in_pieces("abcd abcd", 9), 1000)->vocabulary_size() == 260);
  CHECK(train_byte_pair_tokenizer(in_pieces("aaa", 3), 1000)->vocabulary_size() == 258);  // at two places
  CHECK(train_byte_pair_tokenizer(in_pieces("abab ab ab", 10), 259)->vocabulary_size() == 259);
}

TEST_CASE("a vocabulary without room for bytes and end is refused") {
  CHECK(message_of<DataError>([] { train_byte_pair_tokenizer(in_pieces("a", 1), 256); }) ==
        "[tokenizer] byte pairs need ids for 256 bytes and \"<|endoftext|>\"; got a vocabulary of 256");
  CHECK(train_byte_pair_tokenizer(in_pieces("aaaa", 4), 257)->vocabulary_size() == 257);
}
