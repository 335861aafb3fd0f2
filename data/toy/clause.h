#pragma once

#include <tapeformer/autograd/shape.h>
#include <tapeformer/data/toy/lexicon.h>

#include <string>
#include <vector>

namespace tapeformer::toy {

/// A French word and the position of the English word it renders, -1 for none.
struct FrenchWord {
  std::string text;
  int link;
};

/// Both sides of a part of a sentence; links count from its own first English word.
struct Phrase {
  std::vector<std::string> english;
  std::vector<FrenchWord> french;
  Gender gender = Gender::masculine;
  bool plural = false;

  /// Appends the words of `text`, returns the position of the first.
  int say_english(const std::string& text);
  void say_french(const std::string& text, int link);
  int say_english(const Phrase& part);
  void say_french(const Phrase& part, int position);
  /// Both sides of a part that stands at the same place in both languages.
  void say(const Phrase& part) { say_french(part, say_english(part)); }
  void say(const char* in_english, const char* in_french) { say_french(in_french, say_english(in_english)); }
};

/// A phrase with the person its verb takes.
struct Subject {
  Phrase phrase;
  int person = 2;
  bool pronoun = false;
};

Subject pronoun_subject(const Pronoun& pronoun);
Subject noun_subject(const Phrase& phrase);

/// A determiner, up to two adjectives in English order, and a noun. In the scope of a negation "a" and "some"
/// become de ("any" instead of some).
Phrase noun_phrase(const Determiner& determiner, const std::vector<const Adjective*>& adjectives,
                   const Noun& noun, bool negated = false);

Phrase place_phrase(const Preposition& preposition, const Phrase& noun);
Phrase time_phrase(const TimeAdverbial& time);
/// "too heavy", agreeing with the subject.
Phrase predicate(const Preposition& degree, const Adjective& adjective, const Phrase& subject);

enum class Tense { present, past, future };
enum class Polarity { affirmative, negated, never, always, often };
constexpr int kTenses = 3, kPolarities = 5;

inline bool is_negation(Polarity polarity) {
  return polarity == Polarity::negated || polarity == Polarity::never;
}

/// A subject, a verb and their complements. say_english() must come before say_french(), which uses the
/// positions of the English words. The past tense is passé composé, but imparfait for "to be".
class Clause {
 public:
  Subject subject;
  Tense tense = Tense::present;
  Polarity polarity = Polarity::affirmative;
  const Verb* verb = nullptr;
  const Modal* modal = nullptr;             ///< present; affirmative or negated
  const ObjectPronoun* object = nullptr;    ///< direct
  const ObjectPronoun* receiver = nullptr;  ///< indirect
  const Phrase* relative = nullptr;         ///< the direct object, when the clause is relative to it
  std::vector<Phrase> complements;

  void say_english(Phrase& sentence, bool question = false);
  void say_french(Phrase& sentence, bool inverted = false) const;

 private:
  void say_auxiliary(Phrase& sentence, bool question);
  std::string english_verb();
  void say_clitics(Phrase& sentence) const;

  std::string auxiliary_;  // the English auxiliary, or ""
  int subject_at_ = -1, auxiliary_at_ = -1, adverb_at_ = -1, verb_at_ = -1, pronoun_at_ = -1;
  std::vector<int> complements_at_;
};

/// Sentences as they are written, with elision, contraction, capital, spaces and final mark. `words` are
/// lower case, except I.
std::string write_english(const std::vector<std::string>& words, bool question);
std::string write_french(const std::vector<std::string>& words, bool question);

}  // namespace tapeformer::toy
