#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/metrics.h>
#include <tapeformer/data/tokenizers/translation_tokenizer.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/data/toy/grammar.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

using namespace tapeformer;

namespace {

const ToyGrammar& grammar() {
  static const ToyGrammar instance;
  return instance;
}

}  // namespace

TEST_SUITE("data/toy/grammar") {
  TEST_CASE("the corpus has its exact number of sentences, far over ten million") {
    CHECK(grammar().size() == 1127532480);
    CHECK_THROWS_AS(grammar().pair(-1), DataError);
    CHECK_THROWS_AS(grammar().pair(grammar().size()), DataError);
  }

  TEST_CASE("in a large sample no sentence repeats, so none has two translations") {
    std::unordered_set<std::string> english;
    const auto pairs = grammar().sample(Split::train, 100000, test_seed(5));
    for (const TextPair& pair : pairs) english.insert(pair.source);
    CHECK(english.size() == pairs.size());
  }

  TEST_CASE("the parts share no sentence, and every number belongs to one") {
    std::unordered_set<std::string> train;
    for (const TextPair& pair : grammar().sample(Split::train, 50000, test_seed(1)))
      train.insert(pair.source);
    const auto validation = grammar().sample(Split::validation, 2000, test_seed(1)),
               test = grammar().sample(Split::test, 2000, test_seed(1));
    std::unordered_set<std::string> held_out;
    for (const auto* part : {&validation, &test}) {
      for (const TextPair& pair : *part) {
        CHECK(train.count(pair.source) == 0);
        held_out.insert(pair.source);
      }
    }
    CHECK(held_out.size() == 4000);
    for (const Split split : {Split::train, Split::validation, Split::test}) {
      for (const Index number : grammar().sample_numbers(split, 500, 3))
        CHECK(ToyGrammar::split_of(number) == split);
    }
  }

  TEST_CASE("the built-in text is the same wherever and whenever it is made") {
    const std::string text = grammar().text();
    CHECK(text.size() == 1128624);
    CHECK(hash_text(text) == 1686088585458596054u);
    CHECK(find_no_text(text) == text.npos);
    const TextPair first = grammar().sample(Split::train, 1, 0)[0];
    CHECK(text.substr(0, text.find("\n\n")) == first.source + "\n" + first.target);
  }

  TEST_CASE("a sample is a function of its seed, and a longer one starts with the shorter") {
    const auto sample = grammar().sample_numbers(Split::train, 1000, 1);
    auto longer = grammar().sample_numbers(Split::train, 1500, 1);
    longer.resize(1000);
    CHECK(longer == sample);
    CHECK(grammar().sample_numbers(Split::train, 1000, 2) != sample);
  }

  TEST_CASE("a part that is used up says so") {
    CHECK(message_of<DataError>([] { grammar().sample_numbers(Split::test, 300000, 1); }) ==
          "[toy_grammar] the pattern \"motion\" has too few sentences in this part for a sample of 300000");
  }

  TEST_CASE("sentences have 4 to 14 words, a capital and a final mark") {
    for (const TextPair& pair : grammar().sample(Split::train, 30000, test_seed(9))) {
      const auto english = count_words(pair.source),
                 french = count_words(pair.target) - (pair.target.back() == '?');
      CHECK((english >= 4 && english <= 14 && french >= 4 && french <= 14));
      CHECK(
          (pair.source[0] >= 'A' && pair.source[0] <= 'Z' && pair.target[0] >= 'A' && pair.target[0] <= 'Z'));
      CHECK(pair.source.back() == (pair.target.back() == '?' ? '?' : '.'));
      CHECK(pair.target.find("  ") == std::string::npos);
      CHECK(find_invalid_utf8(pair.target) == std::string_view::npos);
    }
  }

  TEST_CASE("no word is rare: each is in about one sentence of 2,000 at least") {
    std::vector<std::string> english, french;
    for (TextPair& pair : grammar().sample(Split::train, 100000, 1)) {
      english.push_back(std::move(pair.source));
      french.push_back(std::move(pair.target));
    }
    TokenizerConfig config;
    config.kind = TokenizerKind::word;
    const auto all_english = train_translation_tokenizer(config, english),
               all_french = train_translation_tokenizer(config, french);
    CHECK(all_english->vocabulary_size() == 310);
    CHECK(all_french->vocabulary_size() == 663);
    config.min_count = 40;
    CHECK(train_translation_tokenizer(config, english)->vocabulary_size() == 310);
    CHECK(train_translation_tokenizer(config, french)->vocabulary_size() == 663);
  }

  TEST_CASE("a perfect word-by-word dictionary translates under five in a hundred sentences") {
    std::vector<std::string> translations, references;
    for (const TextPair& pair : grammar().sample(Split::test, 4000, 1)) {
      translations.push_back(grammar().word_by_word(pair.source));
      references.push_back(pair.target);
    }
    const double score = exact_match(translations, references);
    CHECK(score < 5);
    CHECK(score > 0.1);
    CHECK(corpus_bleu(translations, references).score >
          15);  // its words are right, their forms and order are not
    // what stands in the same place in both languages comes out right, what moves does not
    CHECK(grammar().word_by_word("They hope that our king sells two books.") ==
          "Ils espères que notre roi vend deux livres.");
    CHECK(grammar().word_by_word("I did not follow the red car.") == "J'a ne pas suivre les rouges voiture.");
  }
}
