#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/pieces.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

std::vector<std::string> spaced_words(std::string_view text) {
  std::vector<std::string> words;
  for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

}  // namespace

using Words = std::vector<std::string>;

TEST_CASE("a word includes the space before it, a mark is on its own") {
  CHECK(spaced_words(" Hello, big world!") == Words{" Hello", ",", " big", " world", "!"});
  CHECK(spaced_words(" Va !") == Words{" Va", " !"});
  CHECK(spaced_words(" Où\u202f? Là\u00a0!") == Words{" Où", "\u202f?", " Là", "\u00a0!"});
  CHECK(spaced_words(" avez-vous 3,14 €") == Words{" avez", "-", "vous", " 3", ",", "14", " €"});
  CHECK(spaced_words(" a  b ") == Words{" a", " ", " b", " "});
  CHECK(spaced_words("").empty());
}

TEST_CASE("an apostrophe belongs to the shorter word, or to the one after it") {
  CHECK(spaced_words(" l'homme") == Words{" l'", "homme"});
  CHECK(spaced_words(" aujourd’hui") == Words{" aujourd", "’hui"});
  CHECK(spaced_words(" Tom's I'm isn't") == Words{" Tom", "'s", " I", "'m", " isn", "'t"});
  CHECK(spaced_words(" jusqu'à l'été") == Words{" jusqu", "'à", " l'", "été"});
  CHECK(spaced_words(" the neighbors' 'n' cars") ==
        Words{" the", " neighbors", "'", " '", "n", "'", " cars"});
  CHECK(spaced_words(" qu'est-ce") == Words{" qu'", "est", "-", "ce"});
}

TEST_CASE("a piece that the vocabulary lacks is unknown, and shows as such") {
  const auto word = word_pieces().train(text_in({"un chat", "un chien"}), 100);
  CHECK(word->encode("un zèbre") == Ids{word->encode("un")[0], kUnknown});
  CHECK(word->decode({kUnknown, word->encode("un")[0], kUnknown}) == "⁇ un ⁇");
  const auto character = character_pieces().train(text_in({"é"}), 100);
  CHECK(character->encode("é漢") == Ids{4, kUnknown});
  CHECK(character->decode({4, kUnknown}) == "é⁇");
}

TEST_CASE("a vocabulary is capped, and keeps the frequent pieces") {
  const TextSource sentences = text_in({"b a b a c", "b d d"});
  const auto tokenizer = word_pieces().train(sentences, 6);
  CHECK(tokenizer->vocabulary_size() == 6);
  CHECK(tokenizer->piece(4) == " b");
  CHECK(tokenizer->piece(5) == " a");
  CHECK(word_pieces().train(sentences, 100)->vocabulary_size() == 4 + 4);
}
