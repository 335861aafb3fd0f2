#pragma once

#include <array>
#include <string>

/// The words of the built-in corpus. Speakers, those spoken to and "they" are masculine; "you" is one person.
namespace tapeformer::toy {

enum class Gender { masculine, feminine };

struct Noun {
  const char *english, *english_plural, *french;
  Gender gender;
};

struct Adjective {
  const char* english;
  const char* comparative;  ///< nullptr when there is none
  const char *masculine, *feminine;
  const char* before_vowel;  ///< masculine singular before a vowel, when it is special
  bool before_noun;
};

/// Either singular, with a form for each gender, or plural.
struct Determiner {
  const char *english, *masculine, *feminine;
  bool plural;
};

/// I, you, he or she (and every singular noun), we, they (and every plural noun).
constexpr int kPersons = 5;
using Forms = std::array<const char*, kPersons>;

struct Verb {
  const char *english, *third, *past;
  const char* particle;  ///< the English word between the verb and its object, or ""
  const char* infinitive;
  Forms present;
  const char *participle, *future;
  bool with_etre;
};

struct Pronoun {
  const char *english, *french;
  int person;
  Gender gender;
};

/// An object that stands before the French verb: direct and indirect form.
struct ObjectPronoun {
  const char *english, *direct, *indirect;
  Gender gender;
  bool plural;
};

/// A verb that takes another one's infinitive.
enum class ModalKind { want, can, must, going };
struct Modal {
  ModalKind kind;
  Forms present;
};

struct LinkedWord {
  const char* french;
  int link;  ///< position of the English word it renders
};

struct TimeAdverbial {
  const char* english;
  std::array<LinkedWord, 3> french;  ///< nullptr after the last
};

struct Preposition {
  const char *english, *french;
};

struct QuestionWord {
  const char *english, *french;
};

extern const std::array<Noun, 16> kPeople;
extern const std::array<Noun, 24> kThings;
extern const std::array<Noun, 10> kPlaces;
extern const std::array<Adjective, 9> kPersonAdjectives;
extern const std::array<Adjective, 13> kThingAdjectives;  ///< the first five also suit places
extern const std::array<Determiner, 16> kDefinite;        ///< the singular ones come first
constexpr int kDefiniteSingular = 9;
extern const std::array<Determiner, 12> kIndefinite;
extern const std::array<Determiner, 6> kPlaceDeterminers;
extern const std::array<Verb, 8> kPersonVerbs;
extern const std::array<Verb, 13> kThingVerbs;
extern const std::array<Verb, 4> kGivingVerbs;
extern const std::array<Verb, 4> kMotionVerbs;
extern const std::array<Verb, 4> kThinkingVerbs;
extern const std::array<Pronoun, 6> kPronouns;
extern const std::array<ObjectPronoun, 6> kObjectPronouns;
extern const std::array<Modal, 4> kModals;
extern const std::array<std::array<TimeAdverbial, 4>, 3> kTimes;  ///< by tense
extern const std::array<Preposition, 4> kPrepositions;
extern const std::array<Preposition, 4> kDegrees;
extern const std::array<QuestionWord, 4> kQuestionWords;
extern const Verb kBe;
extern const Forms kHave, kWere;

/// The plural of a French noun, adjective or participle.
std::string french_plural(const std::string& singular);
/// A participle or regular adjective in the given gender and number.
std::string agree(const std::string& masculine, Gender gender, bool plural);
std::string agree(const Adjective& adjective, Gender gender, bool plural);

}  // namespace tapeformer::toy
