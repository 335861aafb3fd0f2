#include <doctest/doctest.h>
#include <tapeformer/data/toy/clause.h>

#include <stdexcept>
#include <string>
#include <string_view>

using namespace tapeformer::toy;

namespace {

template <class List>
const auto& by_name(const List& list, std::string_view english) {
  for (const auto& entry : list) {
    if (entry.english == english) return entry;
  }
  throw std::out_of_range(std::string(english));
}

/// The clause in both languages.
std::string both(Clause clause, bool question = false) {
  Phrase sentence;
  clause.say_english(sentence, question);
  clause.say_french(sentence, question);
  std::vector<std::string> french;
  for (const FrenchWord& word : sentence.french) french.push_back(word.text);
  return write_english(sentence.english, question) + " = " + write_french(french, question);
}

Clause clause(const char* subject, Tense tense, Polarity polarity, const Verb& verb) {
  Clause result;
  result.subject = pronoun_subject(by_name(kPronouns, subject));
  result.tense = tense;
  result.polarity = polarity;
  result.verb = &verb;
  return result;
}

std::string french_of(const Phrase& phrase) {
  std::vector<std::string> words;
  for (const FrenchWord& word : phrase.french) words.push_back(word.text);
  return write_french(words, false);
}

std::string noun(const Determiner& determiner, const std::vector<const char*>& adjectives, const char* name,
                 bool negated = false) {
  std::vector<const Adjective*> chosen;
  for (const char* adjective : adjectives) chosen.push_back(&by_name(kThingAdjectives, adjective));
  const Phrase phrase = noun_phrase(determiner, chosen, by_name(kThings, name), negated);
  return write_english(phrase.english, false) + " = " + french_of(phrase);
}

const Determiner kThe{"the", "le", "la", false}, kThePlural{"the", "les", "les", true},
    kMy{"my", "mon", "ma", false}, kThis{"this", "ce", "cette", false}, kA{"a", "un", "une", false},
    kSome{"some", "des", "des", true}, kMany{"many", "beaucoup de", "beaucoup de", true},
    kEight{"eight", "huit", "huit", true};

}  // namespace

TEST_SUITE("data/toy/clause") {
  TEST_CASE("noun phrases agree, order their adjectives and elide") {
    CHECK(noun(kThe, {"big", "red"}, "house") == "The big red house. = La grande maison rouge.");
    CHECK(noun(kThePlural, {"beautiful", "white"}, "horse") ==
          "The beautiful white horses. = Les beaux chevaux blancs.");
    CHECK(noun(kThe, {}, "tree") == "The tree. = L'arbre.");
    CHECK(noun(kA, {"old"}, "tree") == "An old tree. = Un vieil arbre.");
    CHECK(noun(kA, {"new"}, "bird") == "A new bird. = Un nouvel oiseau.");
    CHECK(noun(kThis, {"beautiful"}, "tree") == "This beautiful tree. = Ce bel arbre.");
    CHECK(noun(kThis, {}, "tree") == "This tree. = Cet arbre.");
    CHECK(noun(kMy, {}, "clock") == "My clock. = Mon horloge.");
    CHECK(noun(kMy, {"old"}, "clock") == "My old clock. = Ma vieille horloge.");
    CHECK(noun(kThe, {"old", "black"}, "mouse") == "The old black mouse. = La vieille souris noire.");
    CHECK(noun(kEight, {}, "knife") == "Eight knives. = Huit couteaux.");
    CHECK(noun(kA, {}, "umbrella") == "An umbrella. = Un parapluie.");
  }

  TEST_CASE("indefinite articles change before adjectives, after quantities and under negation") {
    CHECK(noun(kSome, {"green"}, "apple") == "Some green apples. = Des pommes vertes.");
    CHECK(noun(kSome, {"small"}, "apple") == "Some small apples. = De petites pommes.");
    CHECK(noun(kSome, {"green"}, "apple", true) == "Any green apples. = De pommes vertes.");
    CHECK(noun(kA, {}, "tree", true) == "A tree. = D'arbre.");
    CHECK(noun(kMany, {}, "tree") == "Many trees. = Beaucoup d'arbres.");
    CHECK(noun(kThe, {}, "tree", true) == "The tree. = L'arbre.");
  }

  TEST_CASE("tense and polarity shape the verb in both languages") {
    const Verb &see = by_name(kPersonVerbs, "see"), &look = by_name(kPersonVerbs, "look");
    Clause she = clause("she", Tense::present, Polarity::affirmative, see);
    she.complements = {noun_phrase(kThe, {}, by_name(kThings, "cat"))};
    CHECK(both(she) == "She sees the cat. = Elle voit le chat.");
    she.polarity = Polarity::negated;
    CHECK(both(she) == "She does not see the cat. = Elle ne voit pas le chat.");
    she.tense = Tense::past;
    CHECK(both(she) == "She did not see the cat. = Elle n'a pas vu le chat.");
    she.polarity = Polarity::never;
    CHECK(both(she) == "She never saw the cat. = Elle n'a jamais vu le chat.");
    she.tense = Tense::future;
    CHECK(both(she) == "She will never see the cat. = Elle ne verra jamais le chat.");
    she.polarity = Polarity::often;
    she.verb = &look;
    CHECK(both(she) == "She will often look for the cat. = Elle cherchera souvent le chat.");
    she.tense = Tense::past;
    CHECK(both(she) == "She often looked for the cat. = Elle a souvent cherché le chat.");
  }

  TEST_CASE("object pronouns stand before the verb, elide, and the participle agrees with them") {
    const Verb& follow = by_name(kPersonVerbs, "follow");
    Clause i = clause("I", Tense::present, Polarity::affirmative, follow);
    i.object = &by_name(kObjectPronouns, "her");
    CHECK(both(i) == "I follow her. = Je la suis.");
    i.tense = Tense::past;
    CHECK(both(i) == "I followed her. = Je l'ai suivie.");
    i.object = &by_name(kObjectPronouns, "them");
    i.polarity = Polarity::negated;
    CHECK(both(i) == "I did not follow them. = Je ne les ai pas suivis.");
    Clause they = clause("they", Tense::past, Polarity::always, follow);
    they.object = &by_name(kObjectPronouns, "us");
    CHECK(both(they) == "They always followed us. = Ils nous ont toujours suivis.");
    Clause he = clause("he", Tense::past, Polarity::affirmative, by_name(kGivingVerbs, "give"));
    he.receiver = &by_name(kObjectPronouns, "her");
    he.complements = {noun_phrase(kA, {}, by_name(kThings, "apple"))};
    CHECK(both(he) == "He gave her an apple. = Il lui a donné une pomme.");
    he.receiver = &by_name(kObjectPronouns, "them");
    he.tense = Tense::future;
    CHECK(both(he) == "He will give them an apple. = Il leur donnera une pomme.");
  }

  TEST_CASE("verbs of motion take être and agree with the subject") {
    const Verb& go = by_name(kMotionVerbs, "go");
    Phrase castle;
    castle.say_french("à", -1);
    castle.say(noun_phrase(kThePlural, {}, by_name(kPlaces, "castle")));
    Clause she = clause("she", Tense::past, Polarity::negated, go);
    she.complements = {castle};
    CHECK(both(she) == "She did not go to the castles. = Elle n'est pas allée aux châteaux.");
    Clause we = clause("we", Tense::past, Polarity::affirmative, go);
    we.complements = {castle};
    CHECK(both(we) == "We went to the castles. = Nous sommes allés aux châteaux.");
    Clause run = clause("she", Tense::past, Polarity::affirmative, by_name(kMotionVerbs, "run"));
    run.complements = {castle};
    CHECK(both(run) == "She ran to the castles. = Elle a couru aux châteaux.");
  }

  TEST_CASE("modal verbs keep the pronoun before the infinitive") {
    Clause he = clause("he", Tense::present, Polarity::affirmative, by_name(kPersonVerbs, "hide"));
    he.object = &by_name(kObjectPronouns, "you");
    he.modal = &kModals[0];
    CHECK(both(he) == "He wants to hide you. = Il veut te cacher.");
    he.polarity = Polarity::negated;
    CHECK(both(he) == "He does not want to hide you. = Il ne veut pas te cacher.");
    he.modal = &kModals[1];
    CHECK(both(he) == "He cannot hide you. = Il ne peut pas te cacher.");
    he.modal = &kModals[2];
    CHECK(both(he) == "He must not hide you. = Il ne doit pas te cacher.");
    he.modal = &kModals[3];
    CHECK(both(he) == "He is not going to hide you. = Il ne va pas te cacher.");
  }

  TEST_CASE("questions invert, with a t between vowels") {
    const Verb& find = by_name(kPersonVerbs, "find");
    Clause she = clause("she", Tense::present, Polarity::affirmative, find);
    CHECK(both(she, true) == "Does she find? = Trouve-t-elle ?");
    she.tense = Tense::past;
    CHECK(both(she, true) == "Did she find? = A-t-elle trouvé ?");
    CHECK(both(clause("they", Tense::future, Polarity::affirmative, find), true) ==
          "Will they find? = Trouveront-ils ?");
    CHECK(both(clause("he", Tense::present, Polarity::negated, by_name(kThingVerbs, "sell")), true) ==
          "Does he not sell? = Ne vend-il pas ?");
  }

  TEST_CASE("to be agrees, and its predicate with the subject") {
    Clause we = clause("we", Tense::past, Polarity::never, kBe);
    we.complements = {predicate({"too", "trop"}, by_name(kPersonAdjectives, "sad"), we.subject.phrase)};
    CHECK(both(we) == "We were never too sad. = Nous n'étions jamais trop tristes.");
    Clause she = clause("she", Tense::future, Polarity::negated, kBe);
    she.complements = {predicate({"", ""}, by_name(kPersonAdjectives, "happy"), she.subject.phrase)};
    CHECK(both(she) == "She will not be happy. = Elle ne sera pas heureuse.");
  }

  TEST_CASE("de and à contract with le and les, but not with l'") {
    using Words = std::vector<std::string>;
    CHECK(write_french(Words{"près", "de", "le", "pont"}, false) == "Près du pont.");
    CHECK(write_french(Words{"près", "de", "les", "ponts"}, false) == "Près des ponts.");
    CHECK(write_french(Words{"près", "de", "le", "hôtel"}, false) == "Près de l'hôtel.");
    CHECK(write_french(Words{"près", "de", "la", "école"}, false) == "Près de l'école.");
    CHECK(write_french(Words{"je", "vais", "à", "le", "parc"}, false) == "Je vais au parc.");
    CHECK(write_french(Words{"parce", "que", "il", "dort"}, true) == "Parce qu'il dort ?");
    CHECK(write_french(Words{"hier", ",", "je", "ai", "vu", "huit", "oies"}, false) ==
          "Hier, j'ai vu huit oies.");
    CHECK(write_french(Words{"beaucoup", "de", "huit"}, false) == "Beaucoup de huit.");
  }
}
