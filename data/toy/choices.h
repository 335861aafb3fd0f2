#pragma once

#include <tapeformer/autograd/shape.h>
#include <tapeformer/data/toy/clause.h>

#include <array>

namespace tapeformer::toy {

/// Reads a number as digits of changing radix. Each choice of a pattern takes the next digit.
class Digits {
 public:
  explicit Digits(Index number) : rest_(number) {}

  /// The next digit, in [0, radix).
  Index take(Index radix) {
    radices_.at(static_cast<std::size_t>(count_++)) = radix;
    const Index digit = rest_ % radix;
    rest_ /= radix;
    return digit;
  }
  template <class T, std::size_t N>
  const T& pick(const std::array<T, N>& list) {
    return list[static_cast<std::size_t>(take(static_cast<Index>(N)))];
  }

  int count() const { return count_; }
  Index radix(int position) const { return radices_[static_cast<std::size_t>(position)]; }
  /// The number of values of the digits taken so far.
  Index size() const;

 private:
  Index rest_;
  int count_ = 0;
  std::array<Index, 20> radices_{};
};

struct Sentence : Phrase {
  bool question = false;
};

// Choices that patterns share. The radices that each takes do not depend on the digits.
Tense take_tense(Digits& digits);
/// One of the first `choices` polarities.
Polarity take_polarity(Digits& digits, int choices = kPolarities);
Subject take_pronoun(Digits& digits);
const Determiner& take_determiner(Digits& digits);
const Determiner& take_definite_singular(Digits& digits);
Phrase take_person(Digits& digits);
Phrase take_thing(Digits& digits, bool negated = false);
Phrase take_described_thing(Digits& digits, bool negated = false);
Phrase take_location(Digits& digits);
const Adjective& take_adjective(Digits& digits, Index first, Index count);
/// A subject and an object pronoun of different persons: the grammar has no reflexive verbs.
void take_two_pronouns(Digits& digits, Clause& clause, const ObjectPronoun* Clause::*object);
Phrase take_predicate(Digits& digits, const Phrase& subject, const Adjective& adjective);

/// Both sides of a clause.
void say(Clause& clause, Sentence& sentence);
/// A clause with a time, at the end in English, at the front in French.
void say_with_time(Digits& digits, Clause& clause, Sentence& sentence);
/// "the car is too heavy"; the subject's words may have been said before, see wordless.
void say_copula(Sentence& sentence, const Subject& subject, Tense tense, Polarity polarity,
                const Phrase& complement);
/// A subject that agrees with `said` and has no words.
Subject wordless(const Phrase& said);

}  // namespace tapeformer::toy
