#include <tapeformer/data/toy/choices.h>

namespace tapeformer::toy {
namespace {

Phrase take_place(Digits& digits) {
  const Determiner& determiner = digits.pick(kPlaceDeterminers);
  return noun_phrase(determiner, {}, digits.pick(kPlaces));
}

}  // namespace

Index Digits::size() const {
  Index size = 1;
  for (int i = 0; i < count_; ++i) size *= radices_[static_cast<std::size_t>(i)];
  return size;
}

Tense take_tense(Digits& digits) { return static_cast<Tense>(digits.take(kTenses)); }
Polarity take_polarity(Digits& digits, int choices) { return static_cast<Polarity>(digits.take(choices)); }
Subject take_pronoun(Digits& digits) { return pronoun_subject(digits.pick(kPronouns)); }

const Determiner& take_determiner(Digits& digits) {
  const Index choice = digits.take(static_cast<Index>(kDefinite.size() + kIndefinite.size()));
  const auto i = static_cast<std::size_t>(choice);
  return i < kDefinite.size() ? kDefinite[i] : kIndefinite[i - kDefinite.size()];
}

const Determiner& take_definite_singular(Digits& digits) {
  return kDefinite[static_cast<std::size_t>(digits.take(kDefiniteSingular))];
}

Phrase take_person(Digits& digits) {
  const Noun& person = digits.pick(kPeople);  // takes the first of the two digits
  return noun_phrase(digits.pick(kDefinite), {}, person);
}

Phrase take_thing(Digits& digits, bool negated) {
  const Determiner& determiner = take_determiner(digits);
  return noun_phrase(determiner, {}, digits.pick(kThings), negated);
}

Phrase take_described_thing(Digits& digits, bool negated) {
  const Determiner& determiner = take_determiner(digits);
  const Adjective& adjective = digits.pick(kThingAdjectives);
  return noun_phrase(determiner, {&adjective}, digits.pick(kThings), negated);
}

Phrase take_location(Digits& digits) {
  const Preposition& preposition = digits.pick(kPrepositions);
  return place_phrase(preposition, take_place(digits));
}

const Adjective& take_adjective(Digits& digits, Index first, Index count) {
  return kThingAdjectives[static_cast<std::size_t>(first + digits.take(count))];
}

void take_two_pronouns(Digits& digits, Clause& clause, const ObjectPronoun* Clause::*object) {
  static constexpr std::array<std::array<signed char, 2>, 31> kPairs = {
      {{0, 1}, {0, 2}, {0, 3}, {0, 5}, {1, 0}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {2, 0}, {2, 1},
       {2, 2}, {2, 3}, {2, 4}, {2, 5}, {3, 0}, {3, 1}, {3, 2}, {3, 3}, {3, 4}, {3, 5}, {4, 1},
       {4, 2}, {4, 3}, {4, 5}, {5, 0}, {5, 1}, {5, 2}, {5, 3}, {5, 4}, {5, 5}}};
  const auto& pair = digits.pick(kPairs);
  clause.subject = pronoun_subject(kPronouns[static_cast<std::size_t>(pair[0])]);
  clause.*object = &kObjectPronouns[static_cast<std::size_t>(pair[1])];
}

void say(Clause& clause, Sentence& sentence) {
  clause.say_english(sentence);
  clause.say_french(sentence);
}

void say_with_time(Digits& digits, Clause& clause, Sentence& sentence) {
  const auto tense = static_cast<std::size_t>(take_tense(digits));
  const Phrase time = time_phrase(digits.pick(kTimes[tense]));
  clause.tense = static_cast<Tense>(tense);
  clause.say_english(sentence);
  const int time_at = sentence.say_english(time);
  sentence.say_french(time, time_at);
  sentence.say_french(",", -1);
  clause.say_french(sentence);
}

void say_copula(Sentence& sentence, const Subject& subject, Tense tense, Polarity polarity,
                const Phrase& complement) {
  Clause clause;
  clause.subject = subject;
  clause.tense = tense;
  clause.polarity = polarity;
  clause.verb = &kBe;
  clause.complements = {complement};
  say(clause, sentence);
}

Subject wordless(const Phrase& said) {
  Phrase phrase;
  phrase.gender = said.gender;
  phrase.plural = said.plural;
  return noun_subject(phrase);
}

Phrase take_predicate(Digits& digits, const Phrase& subject, const Adjective& adjective) {
  return predicate(digits.pick(kDegrees), adjective, subject);
}

}  // namespace tapeformer::toy
