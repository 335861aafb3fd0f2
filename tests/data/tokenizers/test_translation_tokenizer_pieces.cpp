#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/translation_tokenizer_kinds.h>

using namespace tapeformer;

namespace {

using Ids = std::vector<std::int32_t>;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::unique_ptr<TranslationTokenizer> trained(TokenizerKind kind, const std::vector<std::string>& sentences) {
  TokenizerConfig config;
  config.kind = kind;
  return train_translation_tokenizer(config, sentences);
}

}  // namespace

TEST_SUITE("data/tokenizers/translation_tokenizer_pieces") {
  using Words = std::vector<std::string>;

  TEST_CASE("a word takes the space before it, a mark stands alone") {
    CHECK(words_of(" Hello, big world!") == Words{" Hello", ",", " big", " world", "!"});
    CHECK(words_of(" Va !") == Words{" Va", " !"});
    CHECK(words_of(" Où\u202f? Là\u00a0!") == Words{" Où", "\u202f?", " Là", "\u00a0!"});
    CHECK(words_of(" avez-vous 3,14 €") == Words{" avez", "-", "vous", " 3", ",", "14", " €"});
    CHECK(words_of(" a  b ") == Words{" a", " ", " b", " "});
    CHECK(words_of("").empty());
  }

  TEST_CASE("an apostrophe goes with the shorter word, or the one behind it") {
    CHECK(words_of(" l'homme") == Words{" l'", "homme"});
    CHECK(words_of(" aujourd’hui") == Words{" aujourd", "’hui"});
    CHECK(words_of(" Tom's I'm isn't") == Words{" Tom", "'s", " I", "'m", " isn", "'t"});
    CHECK(words_of(" jusqu'à l'été") == Words{" jusqu", "'à", " l'", "été"});
    CHECK(words_of(" the neighbors' 'n' cars") == Words{" the", " neighbors", "'", " '", "n", "'", " cars"});
    CHECK(words_of(" qu'est-ce") == Words{" qu'", "est", "-", "ce"});
  }

  TEST_CASE("a piece that the vocabulary lacks is unknown, and shows as such") {
    const auto word = trained(TokenizerKind::word, {"un chat", "un chien"});
    CHECK(word->encode("un zèbre") == Ids{word->encode("un")[0], kUnknown});
    CHECK(word->decode({kUnknown, word->encode("un")[0], kUnknown}) == "⁇ un ⁇");
    const auto character = trained(TokenizerKind::character, {"é"});
    CHECK(character->encode("é漢") == Ids{4, kUnknown});
    CHECK(character->decode({4, kUnknown}) == "é⁇");
  }

  TEST_CASE("a vocabulary is capped, and keeps the frequent pieces") {
    TokenizerConfig config;
    config.kind = TokenizerKind::word;
    config.vocabulary_size = 6;
    const std::vector<std::string> sentences = {"b a b a c", "b d d"};
    const auto tokenizer = train_translation_tokenizer(config, sentences);
    CHECK(tokenizer->vocabulary_size() == 6);
    CHECK(tokenizer->piece(4) == " b");
    CHECK(tokenizer->piece(5) == " a");
    config.vocabulary_size = 100;
    config.min_count = 2;
    CHECK(train_translation_tokenizer(config, sentences)->vocabulary_size() == 4 + 3);
  }
}
