#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/metrics.h>
#include <tapeformer/tests/reference/check_below.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

const nlohmann::json& golden() {
  static const nlohmann::json content =
      nlohmann::json::parse(std::ifstream(TAPEFORMER_SOURCE_DIR "/tests/golden/metrics.json"));
  return content;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("BLEU and chrF are those of sacreBLEU") {
  REQUIRE(golden()["cases"].size() > 20);
  for (const auto& expected : golden()["cases"]) {
    CAPTURE(expected["name"].get<std::string>());
    const Lines hypotheses = expected["hypotheses"], references = expected["references"];
    const BleuScore bleu = corpus_bleu(hypotheses, references);
    CHECK_BELOW(deviation(bleu.score, expected["bleu"].get<double>()), 1e-9);
    for (std::size_t n = 0; n < 4; ++n) {
      CHECK_BELOW(deviation(bleu.precisions[n], expected["precisions"][n].get<double>()), 1e-9);
    }
    CHECK_BELOW(deviation(bleu.brevity_penalty, expected["brevity_penalty"].get<double>()), 1e-9);
    CHECK(bleu.hypothesis_length == expected["hypothesis_length"].get<Index>());
    CHECK(bleu.reference_length == expected["reference_length"].get<Index>());
    CHECK_BELOW(deviation(corpus_chrf(hypotheses, references), expected["chrf"].get<double>()), 1e-9);
  }
}

TEST_CASE("lines are cut into the tokens of mteval-v13a") {
  for (const auto& expected : golden()["tokens"]) {
    const std::string line = expected["line"];
    CAPTURE(line);
    CHECK(tokenize_13a(line) == joined(expected["tokens"].get<Lines>(), " "));
  }
  for (const char digit : std::string("0123456789"))
    CHECK(tokenize_13a(digit + std::string("-x")) == digit + std::string(" - x"));
}

TEST_CASE("a hand-worked BLEU") {
  // 4/5, 2/4, 1/3 of the n-grams match, no 4-gram does: it counts as half of one in 2; nothing is too short
  const BleuScore bleu = corpus_bleu({"a b c x e"}, {"a b c d e"});
  CHECK(bleu.score == doctest::Approx(100 * std::pow(0.8 * 0.5 / 3 * 0.25, 0.25)));
  CHECK(bleu.text() ==
        "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:tapeformer-0.1.0 = 42.73 "
        "80.0/50.0/33.3/25.0 (BP = 1.000 ratio = 1.000 hyp_len = 5 ref_len = 5)");
}

TEST_CASE("exact match counts equal lines") {
  CHECK(exact_match({"a", "b", "c ", "d"}, {"a", "b", "c", "e"}) == 50);
  CHECK(exact_match({"é"}, {"é"}) == 100);
}

TEST_CASE("a corpus without sentences or with a missing hypothesis is refused") {
  CHECK_THROWS_AS(corpus_bleu({}, {}), DataError);
  CHECK_THROWS_AS(corpus_chrf({"a"}, {"a", "b"}), DataError);
  CHECK_THROWS_WITH(
      exact_match({}, {"a"}),
      "[exact_match] every sentence needs one hypothesis and one reference; got 0 hypotheses, 1 reference");
}
