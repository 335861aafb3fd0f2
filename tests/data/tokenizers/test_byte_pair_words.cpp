#include <doctest/doctest.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/byte_pair_words.h>
#include <tapeformer/tests/reference/sanitized.h>
#include <tapeformer/tests/reference/seed.h>

#include <stdexcept>
#include <string>
#include <vector>

using namespace tapeformer;

namespace {

using Words = std::vector<std::string>;

Words words_of(std::string_view text) {
  Words words;
  for (; !text.empty(); text.remove_prefix(words.back().size())) {
    words.emplace_back(text.substr(0, word_length(text)));
    if (words.back().empty()) throw std::logic_error("an empty word");
  }
  return words;
}

Words joined(Words words, const Words& others) {
  words.insert(words.end(), others.begin(), others.end());
  return words;
}

/// The longest head of `text` after which each of `endings` changes nothing, by trying.
std::size_t longest_safe_head(const std::string& text, const Words& endings) {
  for (std::size_t cut = text.size(); cut > 0; --cut) {
    bool safe = true;
    for (const std::string& ending : endings) {
      const std::string rest = text.substr(cut) + ending;
      safe = safe && words_of(text + ending) == joined(words_of(text.substr(0, cut)), words_of(rest));
    }
    if (safe) return cut;
  }
  return 0;
}

}  // namespace

TEST_CASE("letters, numbers and signs are words of their own, with one space before") {
  CHECK(words_of("Hello, world! 42") == Words{"Hello", ",", " world", "!", " 42"});
  CHECK(words_of("abc123def") == Words{"abc", "123", "def"});
  CHECK(words_of("x = {y};") == Words{"x", " =", " {", "y", "};"});
  CHECK(words_of("naïve Ünï日本 ½Ⅷ") == Words{"naïve", " Ünï日本", " ½Ⅷ"});
  CHECK(words_of("e\u0301a") == Words{"e", "\u0301", "a"});  // a mark is not a letter
  CHECK(words_of("a\tb") == Words{"a", "\t", "b"});
  CHECK(words_of("👍🏽 👩\u200d👧") == Words{"👍🏽", " 👩\u200d👧"});
  CHECK(words_of("").empty());
}

TEST_CASE("English contractions are words after an apostrophe at their start") {
  CHECK(words_of("I'm it's don't we're I've he'll she'd") ==
        Words{"I", "'m", " it", "'s", " don", "'t", " we", "'re", " I", "'ve", " he", "'ll", " she", "'d"});
  CHECK(words_of("'sam") == Words{"'s", "am"});
  CHECK(words_of("'rest") == Words{"'re", "st"});
  CHECK(words_of("'roll 'l' 'v") == Words{"'", "roll", " '", "l", "'", " '", "v"});
  CHECK(words_of("I'M") == Words{"I", "'", "M"});
  CHECK(words_of("it’s") == Words{"it", "’", "s"});
  CHECK(words_of(" 's ''s !'s") == Words{" '", "s", " ''", "s", " !'", "s"});
  CHECK(words_of("'s's't") == Words{"'s", "'s", "'t"});
}

TEST_CASE("a run of white space leaves its last character to the next word") {
  CHECK(words_of("a  b") == Words{"a", " ", " b"});
  CHECK(words_of("a \n b") == Words{"a", " \n", " b"});
  CHECK(words_of("a\n\nb") == Words{"a", "\n", "\n", "b"});
  CHECK(words_of("a \nb") == Words{"a", " ", "\n", "b"});
  CHECK(words_of("a\u00a0\u3000b") == Words{"a", "\u00a0", "\u3000", "b"});
  CHECK(words_of("a\n\n  ") == Words{"a", "\n\n  "});
  CHECK(words_of(" ") == Words{" "});
  CHECK(words_of("   '") == Words{"  ", " '"});
  CHECK(words_of("\r\n\r\n!") == Words{"\r\n\r", "\n", "!"});
}

TEST_CASE("bytes that are not UTF-8 go with the signs") {
  CHECK(words_of("a\xff!b") == Words{"a", "\xff!", "b"});
  CHECK(words_of("a \xe2\x82 b") == Words{"a", " \xe2\x82", " b"});
  CHECK(words_of("\xed\xa0\x80\xf0\x9f") == Words{"\xed\xa0\x80\xf0\x9f"});
  CHECK(words_of("\xc2 \x85") == Words{"\xc2", " \x85"});
  CHECK(words_of("  \x85z") == Words{" ", " \x85", "z"});
}

TEST_CASE("the cut is the longest that no continuation can change") {
  CHECK(safe_word_cut("") == 0);
  CHECK(safe_word_cut("ab\xe2\x82") == 0);  // may become a letter
  CHECK(safe_word_cut("a b\xe2") == 1);
  CHECK(safe_word_cut("a\u3000\u00a0b") == 4);
  const Words alphabet = {"a", "r", "l", "v", "e", "s", "'", "!", "1", " ", "\n", "\u00a0", "é"};
  Words endings = {""};
  for (const std::string& one : alphabet) {
    endings.push_back(one);
    for (const std::string& two : alphabet) endings.push_back(one + two);
  }
  for (std::uint64_t i = 0; i < fewer_if_sanitized(std::uint64_t{4000}); ++i) {
    std::string text;
    for (std::uint64_t k = 0, length = 1 + mix_bits(test_seed(i), 99) % 7; k < length; ++k) {
      text += alphabet[bounded(mix_bits(test_seed(i), k), alphabet.size())];
    }
    CAPTURE(text);
    REQUIRE(safe_word_cut(text) == longest_safe_head(text, endings));
  }
}
