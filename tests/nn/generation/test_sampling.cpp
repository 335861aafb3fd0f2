#include <tapeformer/nn/generation/sampling.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace tapeformer;

namespace {

const Index kDraws = tries_few() ? 20000 : 40000;

SamplingConfig config_of(double temperature, Index top_k, double top_p) {
  SamplingConfig config;
  config.temperature = temperature;
  config.top_k = top_k;
  config.top_p = top_p;
  return config;
}

std::vector<double> shares(const std::vector<double>& logits, const SamplingConfig& config) {
  Generator random(test_seed(3));
  std::vector<double> count(logits.size());
  for (Index i = 0; i < kDraws; ++i)
    count[static_cast<std::size_t>(sample_token(logits.data(), static_cast<Index>(logits.size()), config,
                                                random))] += 1.0 / static_cast<double>(kDraws);
  return count;
}

/// Within the deviations of chance, and exactly zero where nothing may be drawn.
void check_shares(const std::vector<double>& found, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("token ", i, ": ", found[i], " against ", expected[i]);
    CHECK_BELOW(
        std::fabs(found[i] - expected[i]),
        1e-9 + kDeviations * std::sqrt(expected[i] * (1 - expected[i]) / static_cast<double>(kDraws)));
  }
}

/// Logits of these probabilities, shifted.
std::vector<double> logits_of(const std::vector<double>& probabilities) {
  std::vector<double> logits;
  for (const double p : probabilities) logits.push_back(std::log(p) + 7);
  return logits;
}

}  // namespace

TEST_CASE("one token is always kept, and of equally likely ones the first") {
  const std::vector<double> p = {0.1, 0.4, 0.05, 0.25, 0.2};
  check_shares(shares(logits_of(p), config_of(1, 1, 1)), {0, 1, 0, 0, 0});
  check_shares(shares(logits_of(p), config_of(1, 0, 1e-9)), {0, 1, 0, 0, 0});
  check_shares(shares(std::vector<double>{0, 1, 1, 1}, config_of(1, 2, 1)), {0, 0.5, 0.5, 0});
}

TEST_CASE("the likeliest tokens are the first of the sorted ones, whatever the vocabulary and the type") {
  Generator random(test_seed(11));
  for (const Index vocabulary : {1, 127, 128, 129, 1000}) {
    std::vector<double> logits;
    for (Index i = 0; i < vocabulary; ++i) logits.push_back(static_cast<double>(random.below(200)));  // ties
    logits.back() = 300;
    logits.front() = -std::numeric_limits<double>::infinity();
    const std::vector<float> single(logits.begin(), logits.end());
    std::vector<Index> order(logits.size() - 1);
    std::iota(order.begin(), order.end(), 1);
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    for (const Index count : {Index{1}, Index{2}, Index{10}, Index{200}, Index{1} << 40}) {
      std::vector<Index> expected(order.begin(), order.begin() + std::min<Index>(count, vocabulary - 1));
      std::sort(expected.begin(), expected.end());
      for (auto found :
           {likeliest(logits.data(), vocabulary, count), likeliest(single.data(), vocabulary, count)}) {
        std::sort(found.begin(), found.end());
        CHECK(std::vector<Index>(found.begin(), found.end()) == expected);
      }
    }
  }
}

TEST_CASE("next tokens read from a device are all, or on a GPU the likeliest of many") {
  Generator random(test_seed(13));
  const Index vocabulary = 40000;
  const Tensor logits = random_normal({4, vocabulary}, random);
  logits.data<double>()[2 * vocabulary - 1] = std::nan("");
  for (const Index count : {0, 5, 10001}) {
    CAPTURE(count);
    const NextTokens next = read_next_tokens(logits.to(default_device()), count);
    const bool is_chosen = default_device().is_cuda() && count == 5;
    REQUIRE(next.values.shape() == Shape{4, is_chosen ? count : vocabulary});
    for (Index row = 0; row < 4; ++row) {
      const double* const of_row = logits.data<double>() + row * vocabulary;
      if (row == 1) {
        CHECK(std::isnan(next.values.at((row + 1) * next.count() - 1)));
        continue;
      }
      const auto likely = likeliest(of_row, vocabulary, 5);
      for (const Index token : likely) {
        const Index place = next.place(row, static_cast<std::int32_t>(token));
        REQUIRE(place >= 0);
        CHECK(next.token(row, place) == token);
        CHECK(next.values.at(row * next.count() + place) == of_row[token]);
      }
    }
    CHECK(next.place(0, static_cast<std::int32_t>(vocabulary)) == -1);
    CHECK(next.place(0, -1) == -1);
  }
}

TEST_CASE("a token with a logit of minus infinity is never drawn, and large logits do not overflow") {
  const double never = -std::numeric_limits<double>::infinity();
  check_shares(shares(std::vector<double>{never, 1e5, never, 1e5}, config_of(1, 0, 1)), {0, 0.5, 0, 0.5});
  check_shares(shares(std::vector<double>{1e5, never, 1e5, never}, config_of(1, 0, 0.99)), {0.5, 0, 0.5, 0});
}

TEST_CASE("temperature 0 takes the likeliest, the first of equals, and no number from the generator") {
  const std::vector<double> logits = {-2, 3, -7, 3, 2.9};
  Generator random(test_seed(3));
  CHECK(sample_token(logits.data(), 5, config_of(0, 0, 1), random) == 1);
  CHECK(sample_token(logits.data(), 5, config_of(0, 2, 0.5), random) == 1);
  CHECK(random.state() == Generator(test_seed(3)).state());
  sample_token(logits.data(), 5, config_of(1, 2, 0.5), random);
  CHECK_FALSE(random.state() == Generator(test_seed(3)).state());
}

TEST_CASE("draws follow transformers' processors, alone and together") {
  const Golden golden("sampling");
  int cases = 0;
  for (const std::string name :
       {"plain", "temperature", "top_k", "top_k_beyond", "top_p", "min_p", "penalty", "penalty_below_one",
        "hot_top_p", "cold_min_p", "top_k_top_p", "top_k_min_p", "top_p_min_p", "all", "all_hot"}) {
    INFO(name);
    const auto options = golden.options(name);
    SamplingConfig config;
    config.temperature = options.value("temperature", 1.0);
    config.top_k = options.value("top_k", Index{0});
    config.top_p = options.value("top_p", 1.0);
    config.min_p = options.value("min_p", 0.0);
    auto logits = golden.tensor(name, "in.logits").to_vector<double>();
    RepetitionPenalty penalty(options.value("repetition_penalty", 1.0));
    for (const std::int32_t token : golden.tensor(name, "in.seen").to_vector<std::int32_t>())
      penalty.see(token);
    penalty.apply(logits.data());
    const auto found = shares(logits, config), expected = golden.tensor(name, "out").to_vector<double>();
    REQUIRE(found.size() == expected.size());
    double chi_square = 0;
    int possible = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK((found[i] == 0 || expected[i] > 0));
      if (expected[i] == 0) continue;
      chi_square += static_cast<double>(kDraws) * std::pow(found[i] - expected[i], 2) / expected[i];
      ++possible;
    }
    const double freedom = possible - 1;
    CHECK_BELOW(chi_square - freedom, freedom == 0 ? 1e-9 : most_chi_square(freedom) - freedom);
    ++cases;
  }
  CHECK(cases == 15);
}

TEST_CASE("with a large vocabulary the same tokens are kept as by sorting all of it") {
  constexpr Index kVocabulary = 5003;
  Generator random(test_seed(7));
  const Tensor normal = Tensor::empty({kVocabulary}, DType::f64);
  for (const double spread :
       {0.0, 0.3, 3.0}) {  // from all alike to few that matter; in steps, so that many tie
    random.fill_normal(normal, 0, spread);
    double* logits = normal.data<double>();
    for (Index i = 0; i < kVocabulary; ++i) logits[i] = std::round(8 * logits[i]) / 8;
    std::vector<Index> order(kVocabulary);
    std::iota(order.begin(), order.end(), Index{0});
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return logits[a] > logits[b]; });
    for (const Index top_k : {0, 1, 40, 4000}) {
      for (const double top_p : {1.0, 0.9, 0.3}) {
        for (const double min_p : {0.0, 0.5}) {
          INFO("spread ", spread, ", top_k ", top_k, ", top_p ", top_p, ", min_p ", min_p);
          SamplingConfig config = config_of(1, top_k, top_p);
          config.min_p = min_p;
          const std::size_t candidates = static_cast<std::size_t>(top_k > 0 ? top_k : kVocabulary);
          double sum = 0, reached = 0;
          for (std::size_t i = 0; i < candidates; ++i) sum += std::exp(logits[order[i]]);
          std::vector<bool> kept(kVocabulary, false);
          const double likeliest = std::exp(logits[order[0]]);
          for (std::size_t i = 0; i < candidates && reached < top_p * sum * (1 + 1e-9); ++i) {
            const double weight = std::exp(logits[order[i]]);
            reached += weight;
            if (weight >= min_p * likeliest * (1 - 1e-9)) kept[static_cast<std::size_t>(order[i])] = true;
          }
          std::vector<bool> drawn(kVocabulary, false);
          for (int i = 0; i < fewer_if_sanitized(100); ++i) {
            const Index token = sample_token(logits, kVocabulary, config, random);
            drawn[static_cast<std::size_t>(token)] = true;
            CHECK(kept[static_cast<std::size_t>(token)]);
          }
          if (std::count(kept.begin(), kept.end(), true) == 1) CHECK(drawn == kept);
        }
      }
    }
  }
}

TEST_CASE("a repetition penalty lowers each token seen once, whatever its sign") {
  std::vector<double> logits = {2, -2, 0, 3, -1};
  RepetitionPenalty penalty(4);
  for (const std::int32_t token : {3, 1, 3, 2, 1}) penalty.see(token);
  penalty.apply(logits.data());
  CHECK(logits == std::vector<double>{2, -8, 0, 0.75, -1});
  const double never = -std::numeric_limits<double>::infinity();
  std::vector<double> excluded = {never, never, 1, never, 1};
  penalty.apply(excluded.data());
  CHECK(excluded == std::vector<double>{never, never, 0.25, never, 1});
}

TEST_CASE("values out of range are refused by name") {
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
  for (const double penalty : {0.0, -1.0, 9e-7, 2e6, std::nan("")}) {
    SamplingConfig bad;
    bad.repetition_penalty = penalty;
    refused("[sample] repetition_penalty must be from 1e-6 to 1e6; got ", bad);
  }
  SamplingConfig extreme;
  extreme.repetition_penalty = 1e-60;
  refused("[sample] repetition_penalty must be from 1e-6 to 1e6; got 1e-60", extreme);
  for (const double penalty : {1e-6, 1e6}) {
    extreme.repetition_penalty = penalty;
    CHECK_NOTHROW(extreme.check());
  }
}

TEST_CASE("logits that are not numbers, or of which none is finite, are refused") {
  const double never = -std::numeric_limits<double>::infinity();
  Generator random(test_seed(3));
  const auto refused = [&](const std::vector<double>& logits) {
    return message_of<Error>([&] { sample_token(logits.data(), 3, SamplingConfig{}, random); });
  };
  CHECK(refused({1, std::nan(""), std::nan("")}) ==
        "[sample] the highest logit must be a finite number; got nan among 3; has the model diverged, or is "
        "every token excluded?");
  CHECK(refused({never, never, never}).find("got -inf among 3") != std::string::npos);
  CHECK(refused({1, -never, 1}).find("got inf among 3") != std::string::npos);
}
