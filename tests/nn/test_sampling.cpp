#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/sampling.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace tapeformer;

namespace {

constexpr Index kDraws = 40000;

SamplingConfig config_of(double temperature, Index top_k, double top_p) {
  SamplingConfig config;
  config.temperature = temperature;
  config.top_k = top_k;
  config.top_p = top_p;
  return config;
}

template <class T>
std::vector<double> shares(const std::vector<T>& logits, const SamplingConfig& config) {
  Generator random(3);
  std::vector<double> count(logits.size());
  for (Index i = 0; i < kDraws; ++i)
    count[static_cast<std::size_t>(
        sample_token(logits.data(), static_cast<Index>(logits.size()), config, random))] += 1.0 / kDraws;
  return count;
}

/// Within five standard deviations, and exactly zero where nothing may be drawn.
void check_shares(const std::vector<double>& found, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("token ", i, ": ", found[i], " against ", expected[i]);
    CHECK(std::fabs(found[i] - expected[i]) <=
          1e-9 + 5 * std::sqrt(expected[i] * (1 - expected[i]) / static_cast<double>(kDraws)));
  }
}

/// Logits of these probabilities, shifted.
template <class T = double>
std::vector<T> logits_of(const std::vector<double>& probabilities) {
  std::vector<T> logits;
  for (const double p : probabilities) logits.push_back(static_cast<T>(std::log(p) + 7));
  return logits;
}

}  // namespace

TEST_SUITE("nn/sampling") {
  TEST_CASE("tokens are drawn as often as their probability says, in both types") {
    const std::vector<double> p = {0.1, 0.5, 0.05, 0.35};
    check_shares(shares(logits_of(p), config_of(1, 0, 1)), p);
    check_shares(shares(logits_of<float>(p), config_of(1, 0, 1)), p);
  }

  TEST_CASE("a temperature of a half squares the probabilities, one of two takes their root") {
    const std::vector<double> p = {0.1, 0.5, 0.05, 0.35};
    for (const double temperature : {0.5, 2.0}) {
      std::vector<double> expected;
      double sum = 0;
      for (const double each : p) sum += std::pow(each, 1 / temperature);
      for (const double each : p) expected.push_back(std::pow(each, 1 / temperature) / sum);
      check_shares(shares(logits_of(p), config_of(temperature, 0, 1)), expected);
    }
  }

  TEST_CASE("top-k and top-p keep the likeliest, alone and together, and share their probability out") {
    const std::vector<double> p = {0.1, 0.4, 0.05, 0.25, 0.2};
    check_shares(shares(logits_of(p), config_of(1, 2, 1)), {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0});
    check_shares(shares(logits_of(p), config_of(1, 9, 1)), p);
    check_shares(shares(logits_of(p), config_of(1, 1, 1)), {0, 1, 0, 0, 0});
    check_shares(shares(logits_of(p), config_of(1, 0, 0.6)), {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0});
    check_shares(shares(logits_of(p), config_of(1, 0, 0.66)), {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85});
    check_shares(shares(logits_of(p), config_of(1, 0, 1e-9)), {0, 1, 0, 0, 0});
    // Of the three likeliest, 0.4 and 0.25 are 0.76 of the whole.
    check_shares(shares(logits_of(p), config_of(1, 3, 0.75)), {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0});
    check_shares(shares(std::vector<double>{0, 1, 1, 1}, config_of(1, 2, 1)), {0, 0.5, 0.5, 0});
  }

  TEST_CASE("what is minus infinity is never drawn, and large logits do not overflow") {
    const double never = -std::numeric_limits<double>::infinity();
    check_shares(shares(std::vector<double>{never, 1e5, never, 1e5}, config_of(1, 0, 1)), {0, 0.5, 0, 0.5});
    check_shares(shares(std::vector<double>{1e5, never, 1e5, never}, config_of(1, 0, 0.99)),
                 {0.5, 0, 0.5, 0});
  }

  TEST_CASE("temperature 0 takes the likeliest, the first of equals, and no number from the generator") {
    const std::vector<double> logits = {-2, 3, -7, 3, 2.9};
    Generator random(3);
    CHECK(sample_token(logits.data(), 5, config_of(0, 0, 1), random) == 1);
    CHECK(sample_token(logits.data(), 5, config_of(0, 2, 0.5), random) == 1);
    CHECK(random.state() == Generator(3).state());
    sample_token(logits.data(), 5, config_of(1, 2, 0.5), random);
    CHECK_FALSE(random.state() == Generator(3).state());
  }

  TEST_CASE("min-p keeps what is likely enough beside the likeliest, after top-p") {
    const std::vector<double> p = {0.1, 0.4, 0.05, 0.25, 0.2};
    SamplingConfig config = config_of(1, 0, 1);
    config.min_p = 0.45;  // 0.18 at least
    check_shares(shares(logits_of(p), config), {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85});
    config.min_p = 1;
    check_shares(shares(logits_of(p), config), {0, 1, 0, 0, 0});
    config.min_p = 0.2;  // leaves four, of whose 0.95 three are 0.89
    config.top_p = 0.87;
    check_shares(shares(logits_of(p), config), {0.1 / 0.95, 0.4 / 0.95, 0, 0.25 / 0.95, 0.2 / 0.95});
    config.top_k = 3;
    check_shares(shares(logits_of(p), config), {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85});
    config.temperature = 0.5;  // squares, of which the least is a quarter of the largest
    check_shares(shares(logits_of(p), config), {0, 0.16 / 0.2625, 0, 0.0625 / 0.2625, 0.04 / 0.2625});
    config.min_p = 0.26;
    check_shares(shares(logits_of(p), config), {0, 0.16 / 0.2225, 0, 0.0625 / 0.2225, 0});
  }

  TEST_CASE("a repetition penalty lowers each token seen once, whatever its sign") {
    std::vector<float> logits = {2, -2, 0, 3, -1};
    RepetitionPenalty penalty(4);
    for (const std::int32_t token : {3, 1, 3, 2, 1}) penalty.see(token);
    penalty.apply(logits.data());
    CHECK(logits == std::vector<float>{2, -8, 0, 0.75F, -1});
    const float never = -std::numeric_limits<float>::infinity();
    std::vector<float> excluded = {never, never, 1, never, 1};
    penalty.apply(excluded.data());
    CHECK(excluded == std::vector<float>{never, never, 0.25F, never, 1});
  }

  TEST_CASE("what is out of range is refused, each by its name") {
    const auto refused = [](const char* start, const SamplingConfig& bad) {
      CHECK(message_of<Error>([&] { bad.check(); }).find(start) == 0);
    };
    config_of(0, 0, 1).check();
    for (const double temperature : {-0.1, std::nan(""), std::numeric_limits<double>::infinity()})
      refused("[sample] temperature must be 0 or positive; got ", config_of(temperature, 0, 1));
    refused("[sample] top_k must be positive, or 0 for all tokens; got -1", config_of(1, -1, 1));
    for (const double top_p : {0.0, 1.5, std::nan("")})
      refused("[sample] top_p must be above 0 and at most 1; got ", config_of(1, 0, top_p));
    for (const double min_p : {-0.1, 1.1, std::nan("")}) {
      SamplingConfig bad;
      bad.min_p = min_p;
      refused("[sample] min_p must be in [0, 1]; got ", bad);
    }
    for (const double penalty : {0.0, -1.0, std::nan("")}) {
      SamplingConfig bad;
      bad.repetition_penalty = penalty;
      refused("[sample] repetition_penalty must be positive; got ", bad);
    }
  }

  TEST_CASE("logits that are no numbers, or of which none is finite, are refused") {
    const float never = -std::numeric_limits<float>::infinity();
    Generator random(3);
    const auto refused = [&](const std::vector<float>& logits) {
      return message_of<Error>([&] { sample_token(logits.data(), 3, SamplingConfig{}, random); });
    };
    CHECK(refused({1, std::nanf(""), std::nanf("")}) ==
          "[sample] the highest logit must be a finite number; got 2 that are no number among 3; has the "
          "model diverged?");
    CHECK(refused({never, never, never}).find("got -inf among 3") != std::string::npos);
    CHECK(refused({1, -never, 1}).find("got inf among 3") != std::string::npos);
  }
}
