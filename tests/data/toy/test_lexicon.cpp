#include <doctest/doctest.h>
#include <tapeformer/data/toy/lexicon.h>

#include <set>

using namespace tapeformer::toy;

TEST_SUITE("data/toy/lexicon") {
  TEST_CASE("plurals follow their ending") {
    CHECK(french_plural("livre") == "livres");
    CHECK(french_plural("souris") == "souris");
    CHECK(french_plural("heureux") == "heureux");
    CHECK(french_plural("château") == "châteaux");
    CHECK(french_plural("cheval") == "chevaux");
    CHECK(french_plural("beau") == "beaux");
  }

  TEST_CASE("participles and adjectives agree in gender and number") {
    CHECK(agree("trouvé", Gender::feminine, true) == "trouvées");
    CHECK(agree("pris", Gender::masculine, true) == "pris");
    CHECK(agree("pris", Gender::feminine, false) == "prise");
    const Adjective white{"white", nullptr, "blanc", "blanche", nullptr, false};
    CHECK(agree(white, Gender::masculine, true) == "blancs");
    CHECK(agree(white, Gender::feminine, true) == "blanches");
  }

  TEST_CASE("no two choices of a list read the same in English, so that sentences differ") {
    for (const auto* nouns : {kPeople.begin(), kThings.begin(), kPlaces.begin()}) {
      const std::size_t count = nouns == kPeople.begin()   ? kPeople.size()
                                : nouns == kThings.begin() ? kThings.size()
                                                           : kPlaces.size();
      std::set<std::string> forms;
      for (std::size_t i = 0; i < count; ++i) forms.insert({nouns[i].english, nouns[i].english_plural});
      CHECK(forms.size() == 2 * count);
    }
    std::set<std::string> adjectives, forms, singular, plural;
    for (const Adjective& adjective : kThingAdjectives) adjectives.insert(adjective.english);
    CHECK(adjectives.size() == kThingAdjectives.size());
    for (const Verb& verb : kThingVerbs) forms.insert({verb.english, verb.third, verb.past});
    CHECK(forms.size() == 3 * kThingVerbs.size());
    for (const Determiner& determiner : kDefinite)
      (determiner.plural ? plural : singular).insert(determiner.english);
    CHECK(singular.size() == kDefiniteSingular);
    CHECK(singular.size() + plural.size() == kDefinite.size());
  }
}
