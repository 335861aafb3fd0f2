#include <tapeformer/data/toy/clause.h>

#include <algorithm>
#include <cctype>
#include <cstring>

namespace tapeformer::toy {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t from = text.find_first_not_of(' '), to; from < text.size();
       from = text.find_first_not_of(' ', to)) {
    to = std::min(text.find(' ', from), text.size());
    words.push_back(text.substr(from, to - from));
  }
  return words;
}

/// True if a French word starts with a vowel sound. Every h of the lexicon is mute, except in huit.
bool starts_with_vowel(const std::string& word) {
  static const char* const kStarts[] = {"a", "e", "i", "o", "u", "h", "é", "è", "ê", "à", "â", "î", "ô", "œ"};
  if (word == "huit") return false;
  return std::any_of(std::begin(kStarts), std::end(kStarts),
                     [&](const char* start) { return word.compare(0, std::strlen(start), start) == 0; });
}

/// The form that `word` takes before `next`.
std::string before(const std::string& word, const std::string& next) {
  static const char* const kEliding[] = {"je", "me", "te", "le", "la", "ne", "de", "que"};
  if (!starts_with_vowel(next)) return word;
  if (word == "ce") return "cet";
  if (word == "ma" || word == "ta" || word == "sa") return word.substr(0, 1) + "on";
  const bool elides =
      std::any_of(std::begin(kEliding), std::end(kEliding), [&](const char* e) { return word == e; });
  return elides ? word.substr(0, word.size() - 1) + "'" : word;
}

std::string capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

const char* adverb_in_french(Polarity polarity) {
  static constexpr const char* kAdverbs[] = {"", "pas", "jamais", "toujours", "souvent"};
  return kAdverbs[static_cast<int>(polarity)];
}

std::string french_future(const Verb& verb, int person) {
  static constexpr const char* kEndings[] = {"ai", "as", "a", "ons", "ont"};
  return std::string(verb.future) + kEndings[person];
}

}  // namespace

int Phrase::say_english(const std::string& text) {
  const int position = static_cast<int>(english.size());
  for (std::string& word : words_of(text)) english.push_back(std::move(word));
  return position;
}

void Phrase::say_french(const std::string& text, int link) {
  for (std::string& word : words_of(text)) french.push_back({std::move(word), link});
}

int Phrase::say_english(const Phrase& part) {
  const int position = static_cast<int>(english.size());
  english.insert(english.end(), part.english.begin(), part.english.end());
  return position;
}

void Phrase::say_french(const Phrase& part, int position) {
  for (const FrenchWord& word : part.french)
    french.push_back({word.text, word.link < 0 ? -1 : word.link + position});
}

Subject pronoun_subject(const Pronoun& pronoun) {
  Subject subject;
  subject.phrase.gender = pronoun.gender;
  subject.phrase.plural = pronoun.person >= 3;
  subject.phrase.say(pronoun.english, pronoun.french);
  subject.person = pronoun.person;
  subject.pronoun = true;
  return subject;
}

Subject noun_subject(const Phrase& phrase) { return {phrase, phrase.plural ? 4 : 2, false}; }

Phrase noun_phrase(const Determiner& determiner, const std::vector<const Adjective*>& adjectives,
                   const Noun& noun, bool negated) {
  Phrase phrase;
  phrase.gender = noun.gender;
  phrase.plural = determiner.plural;
  const bool is_some = !std::strcmp(determiner.english, "some"), is_a = !std::strcmp(determiner.english, "a");
  const int determiner_at = phrase.say_english(is_some && negated ? "any" : determiner.english);
  std::vector<int> adjectives_at;
  for (const Adjective* adjective : adjectives)
    adjectives_at.push_back(phrase.say_english(adjective->english));
  const int noun_at = phrase.say_english(determiner.plural ? noun.english_plural : noun.english);

  const std::string noun_french = determiner.plural ? french_plural(noun.french) : noun.french;
  const bool any_before =
      std::any_of(adjectives.begin(), adjectives.end(), [](auto* a) { return a->before_noun; });
  const bool partitive = (negated && (is_a || is_some)) || (is_some && any_before);  // de grandes maisons
  const char* agreed = noun.gender == Gender::feminine ? determiner.feminine : determiner.masculine;
  phrase.say_french(partitive ? "de" : agreed, determiner_at);
  const auto say_adjectives = [&](bool before_noun) {
    for (std::size_t i = 0; i < adjectives.size(); ++i) {
      const Adjective& adjective = *adjectives[i];
      if (adjective.before_noun != before_noun) continue;
      const bool special = before_noun && adjective.before_vowel && !phrase.plural &&
                           noun.gender == Gender::masculine && starts_with_vowel(noun_french);
      phrase.say_french(special ? adjective.before_vowel : agree(adjective, phrase.gender, phrase.plural),
                        adjectives_at[i]);
    }
  };
  say_adjectives(true);
  phrase.say_french(noun_french, noun_at);
  say_adjectives(false);
  return phrase;
}

Phrase place_phrase(const Preposition& preposition, const Phrase& noun) {
  Phrase phrase;
  phrase.say(preposition.english, preposition.french);
  phrase.say(noun);
  return phrase;
}

Phrase time_phrase(const TimeAdverbial& time) {
  Phrase phrase;
  phrase.say_english(time.english);
  for (const LinkedWord& word : time.french) {
    if (word.french) phrase.say_french(word.french, word.link);
  }
  return phrase;
}

Phrase predicate(const Preposition& degree, const Adjective& adjective, const Phrase& subject) {
  Phrase phrase;
  phrase.say(degree.english, degree.french);
  phrase.say_french(agree(adjective, subject.gender, subject.plural), phrase.say_english(adjective.english));
  return phrase;
}

/// Sets the auxiliary that the tense, the negation and the question ask for.
void Clause::say_auxiliary(Phrase& sentence, bool question) {
  const bool third = subject.person == 2, is_be = verb == &kBe, negated = polarity == Polarity::negated;
  if (tense == Tense::future) {
    auxiliary_ = "will";
  } else if (modal && modal->kind == ModalKind::can) {
    auxiliary_ = negated ? "cannot" : "can";
  } else if (modal && modal->kind == ModalKind::must) {
    auxiliary_ = "must";
  } else if (is_be || (modal && modal->kind == ModalKind::going)) {
    const bool plural = subject.person != 0 && !third;
    auxiliary_ = tense == Tense::past ? (plural ? "were" : "was") : plural ? "are" : third ? "is" : "am";
  } else if (question || negated) {
    auxiliary_ = tense == Tense::past ? "did" : third ? "does" : "do";
  }
  if (!auxiliary_.empty()) auxiliary_at_ = sentence.say_english(auxiliary_);
}

/// The verb form after the auxiliary and the adverb.
std::string Clause::english_verb() {
  const bool third = subject.person == 2;
  if (modal && modal->kind == ModalKind::want) {
    return std::string(auxiliary_.empty() && third ? "wants to " : "want to ") + verb->english;
  }
  if (modal && modal->kind == ModalKind::going) return std::string("going to ") + verb->english;
  if (verb == &kBe && tense != Tense::future) return "";  // the auxiliary was the verb
  if (!auxiliary_.empty()) return verb->english;
  return tense == Tense::past ? verb->past : third ? verb->third : verb->english;
}

void Clause::say_english(Phrase& sentence, bool question) {
  static constexpr const char* kAdverbs[] = {"", "not", "never", "always", "often"};
  if (question) say_auxiliary(sentence, true);
  subject_at_ = sentence.say_english(subject.phrase);
  if (!question) say_auxiliary(sentence, false);
  adverb_at_ =
      auxiliary_ == "cannot" ? auxiliary_at_ : sentence.say_english(kAdverbs[static_cast<int>(polarity)]);
  const std::string words = english_verb();
  const int first = sentence.say_english(words);
  verb_at_ = words.empty() ? auxiliary_at_ : static_cast<int>(sentence.english.size()) - 1;
  // "wants to see": the modal is the first word; "is going to see" and "can see": the auxiliary
  if (modal && modal->kind == ModalKind::want) auxiliary_at_ = first;
  sentence.say_english(verb->particle);
  const ObjectPronoun* pronoun = object ? object : receiver;
  if (pronoun) pronoun_at_ = sentence.say_english(pronoun->english);
  for (const Phrase& complement : complements) complements_at_.push_back(sentence.say_english(complement));
}

void Clause::say_clitics(Phrase& sentence) const {
  if (object) sentence.say_french(object->direct, pronoun_at_);
  if (receiver) sentence.say_french(receiver->indirect, pronoun_at_);
}

void Clause::say_french(Phrase& sentence, bool inverted) const {
  const auto person = static_cast<std::size_t>(subject.person);
  const bool compound = tense == Tense::past && verb != &kBe;
  std::string finite = modal                    ? modal->present[person]
                       : tense == Tense::future ? french_future(*verb, subject.person)
                       : compound               ? (verb->with_etre ? kBe.present : kHave)[person]
                       : tense == Tense::past   ? kWere[person]
                                                : verb->present[person];
  if (!inverted) sentence.say_french(subject.phrase, subject_at_);
  if (is_negation(polarity)) sentence.say_french("ne", adverb_at_);
  if (!modal) say_clitics(sentence);
  const bool has_auxiliary = auxiliary_at_ >= 0 && (modal || compound);
  sentence.say_french(finite, has_auxiliary ? auxiliary_at_ : verb_at_);
  if (inverted) {
    const bool hiatus = finite.back() == 'a' || finite.back() == 'e';
    sentence.say_french((hiatus && subject.person == 2 ? "-t-" : "-") + subject.phrase.french[0].text,
                        subject_at_);
  }
  sentence.say_french(adverb_in_french(polarity), adverb_at_);
  if (compound) {
    // with être the participle agrees with the subject, with avoir with the direct object if that came before
    const Phrase& of = verb->with_etre ? subject.phrase : relative ? *relative : Phrase{};
    const Gender gender = object ? object->gender : of.gender;
    sentence.say_french(agree(verb->participle, gender, object ? object->plural : of.plural), verb_at_);
  }
  if (modal) {
    say_clitics(sentence);
    sentence.say_french(verb->infinitive, verb_at_);
  }
  for (std::size_t i = 0; i < complements.size(); ++i)
    sentence.say_french(complements[i], complements_at_[i]);
}

std::string write_english(const std::vector<std::string>& words, bool question) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool vowel_next = i + 1 < words.size() && std::strchr("aeiou", words[i + 1][0]);
    text += (i ? " " : "") + words[i] + (words[i] == "a" && vowel_next ? "n" : "");
  }
  return capitalised(text) + (question ? "?" : ".");
}

std::string write_french(const std::vector<std::string>& words, bool question) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    const std::string next = i + 1 < words.size() ? words[i + 1] : "";
    const bool article_elides = i + 2 < words.size() && starts_with_vowel(words[i + 2]);
    const bool contracts =
        (word == "de" || word == "à") && (next == "les" || (next == "le" && !article_elides));
    if (contracts) {
      word = word == "de" ? (next == "le" ? "du" : "des") : (next == "le" ? "au" : "aux");
      ++i;
    } else {
      word = before(word, next);
    }
    const bool joined = text.empty() || text.back() == '\'' || word == "," || word[0] == '-';
    text += (joined ? "" : " ") + word;
  }
  return capitalised(text) + (question ? " ?" : ".");
}

}  // namespace tapeformer::toy
