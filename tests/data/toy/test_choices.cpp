#include <doctest/doctest.h>
#include <tapeformer/data/toy/choices.h>

#include <set>

using namespace tapeformer;
using namespace tapeformer::toy;

TEST_SUITE("data/toy/choices") {
  TEST_CASE("digits of changing radix tell all numbers below their product apart") {
    std::set<std::array<Index, 3>> seen;
    for (Index number = 0; number < 2 * 3 * 5; ++number) {
      Digits digits(number);
      const Index a = digits.take(2), b = digits.take(3), c = digits.take(5);
      CHECK(a + 2 * b + 6 * c == number);
      seen.insert({a, b, c});
      CHECK(digits.count() == 3);
      CHECK(digits.radix(1) == 3);
      CHECK(digits.size() == 30);
    }
    CHECK(seen.size() == 30);
  }

  TEST_CASE("nobody is the object of himself") {
    for (Index number = 0; number < 31; ++number) {
      Digits digits(number);
      Clause clause;
      take_two_pronouns(digits, clause, &Clause::object);
      CHECK(digits.size() == 31);
      const std::string subject = clause.subject.phrase.english[0], object = clause.object->english;
      CHECK_FALSE((subject == "I" && (object == "me" || object == "us")));
      CHECK_FALSE((subject == "we" && (object == "me" || object == "us")));
      CHECK_FALSE((subject == "you" && object == "you"));
    }
  }

  TEST_CASE("a time closes the English sentence and opens the French one") {
    Digits digits(1 + 3 * 2);  // past, the third of its times
    Clause clause;
    clause.subject = pronoun_subject(kPronouns[3]);
    clause.verb = &kMotionVerbs[0];
    Sentence sentence;
    say_with_time(digits, clause, sentence);
    CHECK(write_english(sentence.english, false) == "She went to last week.");
    CHECK(sentence.french[0].text == "la");
    CHECK(sentence.french[0].link == 4);
    CHECK(sentence.french[2].text == "dernière");
    CHECK(sentence.french[2].link == 3);
    CHECK(sentence.french.back().text == "allée");
  }

  TEST_CASE("a copula agrees with a subject that was said before") {
    Phrase clocks;
    clocks.gender = Gender::feminine;
    clocks.plural = true;
    Sentence sentence;
    const Phrase heavy = predicate({"too", "trop"}, kThingAdjectives[6], clocks);
    say_copula(sentence, wordless(clocks), Tense::past, Polarity::negated, heavy);
    CHECK(write_english(sentence.english, false) == "Were not too heavy.");
    CHECK(sentence.french.size() == 5);
    CHECK(sentence.french[1].text == "étaient");
    CHECK(sentence.french[4].text == "lourdes");
  }
}
