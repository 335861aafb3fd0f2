#include <tapeformer/examples/gradcheck/attention_figures.h>
#include <tapeformer/tests/reference/check_below.h>

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <sstream>

using namespace tapeformer;

namespace {

const char* const kPublished[][2] = {
    {"No weights: scores of tokens 1 and 2",
     "0.9995 0.9544 0.9422 0.4753 0.4576 0.6310 / 0.9544 1.4950 1.4754 0.8434 0.7070 1.0865"},
    {"No weights: attention weights of token 2", "0.1385 0.2379 0.2333 0.1240 0.1082 0.1581"},
    {"No weights: context",
     "0.4421 0.5931 0.5790 / 0.4419 0.6515 0.5683 / 0.4431 0.6496 0.5671 / 0.4304 0.6298 0.5510 / "
     "0.4671 0.5910 0.5266 / 0.4177 0.6503 0.5645"},
    {"Sums instead of softmax: weights of token 2", "0.1455 0.2278 0.2249 0.1285 0.1077 0.1656"},
    {"Matrices: query of token 2", "0.4306 1.4551"},
    {"Matrices: scores of token 2", "1.2705 1.8524 1.8111 1.0795 0.5577 1.5440"},
    {"Matrices: attention weights of token 2", "0.1500 0.2264 0.2199 0.1311 0.0906 0.1820"},
    {"Matrices: output",
     "0.2996 0.8053 / 0.3061 0.8210 / 0.3058 0.8203 / 0.2948 0.7939 / 0.2927 0.7891 / 0.2990 0.8040"},
    {"Linear layers: output",
     "-0.0739 0.0713 / -0.0748 0.0703 / -0.0749 0.0702 / -0.0760 0.0685 / -0.0763 0.0679 / -0.0754 0.0693"},
    {"Linear layers: attention weights of token 6", "0.1935 0.1663 0.1666 0.1542 0.1666 0.1529"},
    {"Linear layers: causal weights of tokens 2, 3 and 4",
     "0.5517 0.4483 / 0.3800 0.3097 0.3103 / 0.2758 0.2460 0.2462 0.2319"},
    {"Dropout of ones", "2 2 0 2 2 0 / 0 0 0 2 0 2 / 2 2 2 2 0 2 / 0 2 2 0 0 2 / 0 2 0 2 0 2 / 0 2 2 2 2 0"},
    {"Dropout of the causal weights of tokens 3, 4 and 6",
     "0.7599 0.6194 0.6206 / 0.0000 0.4921 0.4925 0.0000 / 0.0000 0.3327 0.3331 0.3084 0.3331 0.0000"},
    {"Causal attention, first of the batch",
     "-0.4519 0.2216 / -0.5874 0.0058 / -0.6300 -0.0632 / -0.5675 -0.0843 / -0.5526 -0.0981 / "
     "-0.5299 -0.1081"},
    {"Causal attention, second of the batch",
     "-0.4519 0.2216 / -0.5874 0.0058 / -0.6300 -0.0632 / -0.5675 -0.0843 / -0.5526 -0.0981 / "
     "-0.5299 -0.1081"},
    {"Multi-head attention of two heads, from width three to two, both of the batch",
     "0.3190 0.4858 / 0.2943 0.3897 / 0.2856 0.3593 / 0.2693 0.3873 / 0.2639 0.3928 / 0.2575 0.4028 / "
     "0.3190 0.4858 / 0.2943 0.3897 / 0.2856 0.3593 / 0.2693 0.3873 / 0.2639 0.3928 / 0.2575 0.4028"},
    {"softmax(2.3, 9.1, 0.5); one text misprints 0.002 0.995 0.003", "0.0011 0.9987 0.0002"},
};

}  // namespace

TEST_SUITE("examples/gradcheck/attention_figures") {
  TEST_CASE("the layers reproduce every published figure to every printed decimal") {
    std::map<std::string, AttentionFigure> figures;
    for (const AttentionFigure& figure : attention_figures()) figures[figure.title] = figure;
    CHECK(figures.size() == std::size(kPublished));
    for (const auto& [name, published] : kPublished) {
      const std::string title = name;
      CAPTURE(title);
      REQUIRE(figures.count(title) == 1);
      CHECK(figures[title].ours == published);
      CHECK(figures[title].published == published);
    }
  }

  TEST_CASE("products of normal vectors have a variance of their width, and of one when scaled") {
    const ScalingEffect effect = scaling_effect(64, 100000);
    // The variance of a sample of 100,000 strays by 64 sqrt(2.09 / 100000) = 0.29.
    CHECK(std::abs(effect.variance - 64) < 4 * 0.29);
    CHECK_BELOW(deviation(effect.scaled_variance, effect.variance / 64), 1e-5);
    // ln 10 nats and weights of 1/10 would be indifference; 0 nats and 1 a saturated softmax.
    CHECK(effect.entropy < 0.4);
    CHECK(effect.largest > 0.85);
    CHECK(effect.scaled_entropy > 1.85);
    CHECK(effect.scaled_largest < 0.35);
  }

  TEST_CASE("zeroing later keys and dividing by the sum is minus infinity before the softmax") {
    const CausalWeights causal = causal_weights();
    for (Index i = 0; i < 36; ++i) {
      CHECK_BELOW(std::abs(causal.renormalised.at(i) - causal.minus_infinity.at(i)), 2e-7);
      if (i % 6 > i / 6) CHECK(causal.minus_infinity.at(i) == 0);
    }
    CHECK_BELOW(deviation(causal.minus_infinity.at(6), 0.5517), 1e-4);
  }

  TEST_CASE("what is printed ends in the verdict") {
    std::ostringstream out;
    CHECK(print_attention_figures(out));
    CHECK(out.str().find("DIFFERS") == std::string::npos);
    CHECK(out.str().find("every printed decimal is the same") != std::string::npos);
  }
}
