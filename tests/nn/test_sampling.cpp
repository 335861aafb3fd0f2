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

  TEST_CASE("what is out of range is refused") {
    config_of(0.1, 0, 1).check();
    for (const SamplingConfig& bad : {config_of(0, 0, 1), config_of(1, -1, 1), config_of(1, 0, 0),
                                      config_of(1, 0, 1.5), config_of(std::nan(""), 0, 1)})
      CHECK(message_of<Error>([&] { bad.check(); }).find("[sample] temperature must be positive") == 0);
  }
}
