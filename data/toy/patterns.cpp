#include <tapeformer/data/toy/patterns.h>

namespace tapeformer::toy {
namespace {

/// Chooses one of the first `tenses`, one of the first `polarities` and a verb, in this order. There is no
/// choice among 1.
template <std::size_t N>
Clause take_clause(Digits& digits, const Subject& subject, const std::array<Verb, N>& verbs,
                   int tenses = kTenses, int polarities = kPolarities) {
  Clause clause;
  clause.subject = subject;
  if (tenses > 1) clause.tense = static_cast<Tense>(digits.take(tenses));
  if (polarities > 1) clause.polarity = take_polarity(digits, polarities);
  clause.verb = &digits.pick(verbs);
  return clause;
}

// She never finds the red apples.
void pronoun_thing(Digits& digits, Sentence& sentence) {
  Clause clause = take_clause(digits, take_pronoun(digits), kThingVerbs);
  clause.complements = {take_described_thing(digits, is_negation(clause.polarity))};
  say(clause, sentence);
}

// We will always carry a big red umbrella.
void pronoun_thing_twice_described(Digits& digits, Sentence& sentence) {
  Clause clause = take_clause(digits, take_pronoun(digits), kThingVerbs);
  const Determiner& determiner = take_determiner(digits);
  const Adjective& first = take_adjective(digits, 0, 5);
  const Adjective& second = take_adjective(digits, 5, 8);
  const bool negated = is_negation(clause.polarity);
  clause.complements = {noun_phrase(determiner, {&first, &second}, digits.pick(kThings), negated)};
  say(clause, sentence);
}

void person_object(Digits& digits, Sentence& sentence, const Subject& subject) {
  Clause clause = take_clause(digits, subject, kPersonVerbs);
  const Determiner& determiner = digits.pick(kDefinite);
  const Adjective& adjective = digits.pick(kPersonAdjectives);
  clause.complements = {noun_phrase(determiner, {&adjective}, digits.pick(kPeople))};
  say(clause, sentence);
}

// I never followed the famous men.
void pronoun_person(Digits& digits, Sentence& sentence) {
  person_object(digits, sentence, take_pronoun(digits));
}

// My sister does not thank the young doctor.
void person_person(Digits& digits, Sentence& sentence) {
  person_object(digits, sentence, noun_subject(take_person(digits)));
}

// My brother sold two cows last week.
void person_thing_time(Digits& digits, Sentence& sentence) {
  Clause clause = take_clause(digits, noun_subject(take_person(digits)), kThingVerbs, 1);
  clause.complements = {take_thing(digits, is_negation(clause.polarity))};
  say_with_time(digits, clause, sentence);
}

// He often looked for them near the old bridge this morning.
void pronoun_pronoun_place_time(Digits& digits, Sentence& sentence) {
  Clause clause;
  take_two_pronouns(digits, clause, &Clause::object);
  clause.polarity = take_polarity(digits);
  clause.verb = &digits.pick(kPersonVerbs);
  clause.complements = {take_location(digits)};
  say_with_time(digits, clause, sentence);
}

// The children never followed her yesterday.
void person_pronoun_time(Digits& digits, Sentence& sentence) {
  Clause clause;
  clause.subject = noun_subject(take_person(digits));
  clause.object = &digits.pick(kObjectPronouns);
  clause.polarity = take_polarity(digits);
  clause.verb = &digits.pick(kPersonVerbs);
  say_with_time(digits, clause, sentence);
}

// She did not give him three green apples.
void giving_to_pronoun(Digits& digits, Sentence& sentence) {
  Clause clause;
  take_two_pronouns(digits, clause, &Clause::receiver);
  clause.tense = take_tense(digits);
  clause.polarity = take_polarity(digits);
  clause.verb = &digits.pick(kGivingVerbs);
  clause.complements = {take_described_thing(digits, is_negation(clause.polarity))};
  say(clause, sentence);
}

// They will show the horse to the rich uncle.
void giving_to_person(Digits& digits, Sentence& sentence) {
  Clause clause = take_clause(digits, take_pronoun(digits), kGivingVerbs, kTenses, 1);
  const Phrase thing = take_thing(digits);
  const Determiner& determiner = digits.pick(kDefinite);
  const Adjective& adjective = digits.pick(kPersonAdjectives);
  clause.complements = {
      thing, place_phrase({"to", "à"}, noun_phrase(determiner, {&adjective}, digits.pick(kPeople)))};
  say(clause, sentence);
}

// I cannot sell this expensive watch.
void modal_thing(Digits& digits, Sentence& sentence) {
  Clause clause;
  clause.subject = take_pronoun(digits);
  clause.modal = &digits.pick(kModals);
  clause.polarity = take_polarity(digits, 2);
  clause.verb = &digits.pick(kThingVerbs);
  clause.complements = {take_described_thing(digits, is_negation(clause.polarity))};
  say(clause, sentence);
}

// You must look for us behind the school.
void modal_pronoun_place(Digits& digits, Sentence& sentence) {
  Clause clause;
  take_two_pronouns(digits, clause, &Clause::object);
  clause.modal = &digits.pick(kModals);
  clause.polarity = take_polarity(digits, 2);
  clause.verb = &digits.pick(kPersonVerbs);
  clause.complements = {take_location(digits)};
  say(clause, sentence);
}

// Where did she find the white shirt?
void question_inverted(Digits& digits, Sentence& sentence) {
  Clause clause;
  const QuestionWord& word = digits.pick(kQuestionWords);
  clause.subject = pronoun_subject(kPronouns[1 + static_cast<std::size_t>(digits.take(5))]);
  clause.tense = take_tense(digits);
  clause.verb = &digits.pick(kThingVerbs);
  clause.complements = {take_described_thing(digits)};
  sentence.question = true;
  sentence.say(word.english, word.french);
  clause.say_english(sentence, true);
  clause.say_french(sentence, true);
}

// Will the nurses always watch me?
void question_of_person(Digits& digits, Sentence& sentence) {
  Clause clause = take_clause(digits, noun_subject(take_person(digits)), kPersonVerbs);
  clause.object = &digits.pick(kObjectPronouns);
  clause.complements = {take_location(digits)};
  sentence.question = true;
  clause.say_english(sentence, true);
  sentence.say_french("est-ce que", -1);
  clause.say_french(sentence);
}

// My neighbor's old house was not very expensive.
void possession(Digits& digits, Sentence& sentence) {
  const Determiner& determiner = take_definite_singular(digits);
  const Phrase owner = noun_phrase(determiner, {}, digits.pick(kPeople));
  const Adjective& adjective = take_adjective(digits, 0, 5);
  const Determiner& article = kDefinite[digits.take(2) ? kDefiniteSingular : 0];
  const Phrase thing = noun_phrase(article, {&adjective}, digits.pick(kThings));
  sentence.say_english(owner);
  sentence.english.back() += "'s";
  const int thing_at = sentence.say_english(Phrase{{thing.english.begin() + 1, thing.english.end()}, {}}) - 1;
  for (std::size_t i = 0; i < thing.french.size(); ++i) {
    sentence.say_french(thing.french[i].text, i == 0 ? -1 : thing_at + thing.french[i].link);
  }
  sentence.say_french("de", -1);
  sentence.say_french(owner, 0);
  const Tense tense = take_tense(digits);
  const Polarity polarity = take_polarity(digits, 4);
  const Phrase quality = take_predicate(digits, thing, take_adjective(digits, 5, 8));
  say_copula(sentence, wordless(thing), tense, polarity, quality);
}

// Her red car will be bigger than this boat.
void comparison(Digits& digits, Sentence& sentence) {
  static constexpr std::array<signed char, 7> kComparable = {0, 1, 2, 4, 5, 6, 7};
  const Determiner& determiner = digits.pick(kDefinite);
  const Adjective& adjective = take_adjective(digits, 8, 5);
  const Phrase thing = noun_phrase(determiner, {&adjective}, digits.pick(kThings));
  const Tense tense = take_tense(digits);
  const Adjective& quality = kThingAdjectives[static_cast<std::size_t>(digits.pick(kComparable))];
  const Determiner& other_determiner = digits.pick(kDefinite);
  const Phrase other = noun_phrase(other_determiner, {}, digits.pick(kThings));
  Phrase compared;
  const int quality_at = compared.say_english(quality.comparative);
  const int adjective_at = static_cast<int>(compared.english.size()) - 1;  // more beautiful
  compared.say_french("plus", quality_at);
  compared.say_french(agree(quality, thing.gender, thing.plural), adjective_at);
  compared.say("than", "que");
  compared.say(other);
  say_copula(sentence, noun_subject(thing), tense, Polarity::affirmative, compared);
}

// There were four black cats next to the station.
void existence(Digits& digits, Sentence& sentence) {
  const auto tense = static_cast<std::size_t>(take_tense(digits));
  const Determiner& determiner = digits.pick(kIndefinite);
  const Adjective& adjective = digits.pick(kThingAdjectives);
  const Phrase thing = noun_phrase(determiner, {&adjective}, digits.pick(kThings));
  static constexpr const char* kSingular[] = {"is", "was", "will be"};
  static constexpr const char* kPlural[] = {"are", "were", "will be"};
  static constexpr const char* kFrench[] = {"a", "avait", "aura"};
  sentence.say("there", "il y");
  sentence.say((thing.plural ? kPlural : kSingular)[tense], kFrench[tense]);
  sentence.say(thing);
  sentence.say(take_location(digits));
}

// He never went to the new market last year.
void motion(Digits& digits, Sentence& sentence) {
  Clause clause = take_clause(digits, take_pronoun(digits), kMotionVerbs, 1);
  const Determiner& determiner = digits.pick(kPlaceDeterminers);
  const Adjective& adjective = take_adjective(digits, 0, 5);
  const Phrase place = noun_phrase(determiner, {&adjective}, digits.pick(kPlaces));
  Phrase complement;
  complement.say_french("à", -1);
  complement.say(place);
  clause.complements = {complement};
  say_with_time(digits, clause, sentence);
}

// The woman who sold the house is very happy.
void relative_subject(Digits& digits, Sentence& sentence) {
  const Phrase person = take_person(digits);
  sentence.say(person);
  Subject who = wordless(person);
  who.phrase.say("who", "qui");
  Clause clause = take_clause(digits, who, kThingVerbs, 2, 1);
  clause.complements = {take_thing(digits)};
  say(clause, sentence);
  const Tense tense = static_cast<Tense>(digits.take(2));
  say_copula(sentence, wordless(person), tense, Polarity::affirmative,
             take_predicate(digits, person, digits.pick(kPersonAdjectives)));
}

// The old boxes that she found were too heavy.
void relative_object(Digits& digits, Sentence& sentence) {
  const Determiner& determiner = digits.pick(kDefinite);
  const Adjective& adjective = take_adjective(digits, 0, 5);
  const Phrase thing = noun_phrase(determiner, {&adjective}, digits.pick(kThings));
  sentence.say(thing);
  sentence.say("that", "que");
  Clause clause = take_clause(digits, take_pronoun(digits), kThingVerbs, 1, 1);
  clause.tense = Tense::past;
  clause.relative = &thing;
  say(clause, sentence);
  const Tense tense = static_cast<Tense>(digits.take(2));
  say_copula(sentence, wordless(thing), tense, Polarity::affirmative,
             take_predicate(digits, thing, take_adjective(digits, 5, 8)));
}

// They sold the car because it was too old.
void reason(Digits& digits, Sentence& sentence) {
  Clause clause = take_clause(digits, take_pronoun(digits), kThingVerbs, kTenses, 1);
  const Determiner& determiner = digits.pick(kDefinite);
  const Phrase thing = noun_phrase(determiner, {}, digits.pick(kThings));
  clause.complements = {thing};
  say(clause, sentence);
  sentence.say("because", "parce que");
  Subject it = wordless(thing);
  const bool feminine = thing.gender == Gender::feminine;
  it.phrase.say(thing.plural ? "they" : "it", thing.plural ? (feminine ? "elles" : "ils")
                                              : feminine   ? "elle"
                                                           : "il");
  const Tense tense = clause.tense == Tense::past ? Tense::past : Tense::present;
  const Adjective& adjective = digits.pick(kThingAdjectives);
  say_copula(sentence, it, tense, Polarity::affirmative, take_predicate(digits, thing, adjective));
}

// She hopes that the queen will not lose her letter.
void thought(Digits& digits, Sentence& sentence) {
  Clause thinking = take_clause(digits, take_pronoun(digits), kThinkingVerbs, 1, 1);
  say(thinking, sentence);
  sentence.say("that", "que");
  Clause clause = take_clause(digits, noun_subject(take_person(digits)), kThingVerbs, kTenses, 2);
  clause.complements = {take_thing(digits, is_negation(clause.polarity))};
  say(clause, sentence);
}

}  // namespace

const std::array<Pattern, kPatternCount> kPatterns = {{{"pronoun thing", 6, pronoun_thing},
                                                       {"twice described", 6, pronoun_thing_twice_described},
                                                       {"pronoun person", 6, pronoun_person},
                                                       {"person person", 4, person_person},
                                                       {"person thing time", 7, person_thing_time},
                                                       {"pronouns place time", 8, pronoun_pronoun_place_time},
                                                       {"person pronoun time", 5, person_pronoun_time},
                                                       {"giving to pronoun", 7, giving_to_pronoun},
                                                       {"giving to person", 5, giving_to_person},
                                                       {"modal thing", 5, modal_thing},
                                                       {"modal pronoun", 5, modal_pronoun_place},
                                                       {"question inverted", 5, question_inverted},
                                                       {"question of person", 4, question_of_person},
                                                       {"possession", 4, possession},
                                                       {"comparison", 4, comparison},
                                                       {"existence", 4, existence},
                                                       {"motion", 9, motion},
                                                       {"relative subject", 4, relative_subject},
                                                       {"relative object", 5, relative_object},
                                                       {"reason", 4, reason},
                                                       {"thought", 5, thought}}};

}  // namespace tapeformer::toy
