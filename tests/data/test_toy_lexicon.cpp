#include <doctest/doctest.h>
#include <tapeformer/data/toy_lexicon.h>

using namespace tapeformer::toy;

TEST_SUITE("data/toy_lexicon") {
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
}
