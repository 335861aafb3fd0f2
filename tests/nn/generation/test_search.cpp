#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/nn/generation/search.h>
#include <tapeformer/tests/nn/module_case.h>

#include <cmath>
#include <limits>
#include <string>

using namespace tapeformer;

namespace {

constexpr std::int32_t kFirstToken = 2, kLastToken = 3;

/// A model whose next token depends on the last one only, by a table of probabilities for every row's
/// sentence. Notes how many rows every step had.
class TableModel : public NextTokenModel {
 public:
  using Table = std::vector<std::vector<double>>;  // [last token][next token]
  explicit TableModel(std::vector<Table> of_rows) : rows_(std::move(of_rows)) {}

  Tensor step(const TokenIds& tokens) override {
    steps.push_back(tokens.size());
    REQUIRE(tokens.size() == rows_.size());
    std::vector<double> logits;
    for (std::size_t row = 0; row < tokens.size(); ++row)
      for (const double p : rows_[row][static_cast<std::size_t>(tokens[row])])
        logits.push_back(std::log(p) + 1);
    return Tensor::from(logits, {static_cast<Index>(tokens.size()), static_cast<Index>(rows_[0][0].size())});
  }
  void reorder(const std::vector<std::int32_t>& rows) override {
    std::vector<Table> next;
    for (const std::int32_t row : rows) next.push_back(rows_.at(static_cast<std::size_t>(row)));
    rows_ = next;
  }

  std::vector<std::size_t> steps;

 private:
  std::vector<Table> rows_;
};

/// Tokens a = 4 and b = 5. The likelier first token, a, leads to many unlikely ends, b to a certain one.
TableModel::Table misleading() {
  const std::vector<double> none = {1e-9, 1e-9, 1e-9, 1e-9, 0.5, 0.5};
  return {none,
          none,
          {1e-9, 1e-9, 1e-9, 1e-9, 0.6, 0.4},
          none,
          {0.25, 0.25, 1e-9, 0.3, 0.1, 0.1},
          {1e-9, 1e-9, 1e-9, 1, 1e-9, 1e-9}};
}

/// Writes a until the limit, or ends at once.
TableModel::Table certain(bool ends_at_once) {
  std::vector<double> row(6, 1e-9);
  row[ends_at_once ? 3 : 4] = 1;
  return TableModel::Table(6, row);
}

/// One row whose next token depends on the sum of the last one and its position.
class PlacedTableModel : public NextTokenModel {
 public:
  explicit PlacedTableModel(std::vector<double> logits) : logits_(std::move(logits)) {}

  Tensor step(const TokenIds& tokens) override {
    std::vector<double> logits;
    for (const std::int32_t token : tokens) {
      const auto row = logits_.begin() + (token + place_) % 12 * 12;
      logits.insert(logits.end(), row, row + 12);
    }
    ++place_;
    return Tensor::from(logits, {static_cast<Index>(tokens.size()), 12});
  }
  void reorder(const std::vector<std::int32_t>&) override {}

 private:
  std::vector<double> logits_;
  std::ptrdiff_t place_ = 0;
};

/// A large vocabulary on a device. The next token depends on the last one, by a table of four rows.
class WideModel : public NextTokenModel {
 public:
  explicit WideModel(Tensor logits) : logits_(std::move(logits)) {}

  Tensor step(const TokenIds& tokens) override {
    std::vector<std::int32_t> rows;
    for (const std::int32_t token : tokens) rows.push_back(token % 4);
    return picked_rows(logits_, rows);
  }
  void reorder(const std::vector<std::int32_t>&) override {}

 private:
  Tensor logits_;
};

SearchConfig config_of(Index beam) {
  SearchConfig config;
  config.beam = beam;
  config.length_penalty = 0;
  config.begin = kFirstToken;
  config.end = kLastToken;
  return config;
}

std::vector<Hypothesis> found(NextTokenModel& model, const std::vector<Index>& limits,
                              const SearchConfig& config) {
  std::vector<Hypothesis> results(limits.size());
  search_beams(model, limits, config,
               [&](std::size_t sentence, Hypothesis best) { results[sentence] = std::move(best); });
  return results;
}

}  // namespace

TEST_CASE("a beam sees past a first token that misleads greedy search") {
  TableModel greedy({misleading()}), beams({misleading()});
  const Hypothesis first = found(greedy, {5}, config_of(1))[0], best = found(beams, {5}, config_of(2))[0];
  CHECK(first.tokens == TokenIds{4});
  CHECK_BELOW(deviation(first.log_probability, std::log(0.6 * 0.3)), 1e-6);
  CHECK(best.tokens == TokenIds{5});
  CHECK_BELOW(deviation(best.log_probability, std::log(0.4)), 1e-6);
  CHECK(best.score == best.log_probability);
}

TEST_CASE("a sentence that is finished leaves the model, and the others keep their rows") {
  TableModel model({certain(false), certain(true), certain(false), misleading()});
  const auto results = found(model, {2, 9, 6, 9}, config_of(1));
  CHECK(results[0].tokens == TokenIds{4, 4});
  CHECK(results[1].tokens.empty());
  CHECK(results[2].tokens == TokenIds(6, 4));
  CHECK(results[3].tokens == TokenIds{4});
  CHECK(model.steps == std::vector<std::size_t>{4, 3, 1, 1, 1, 1});
}

TEST_CASE("samples come as often as their probability says, whole outputs included") {
  constexpr std::size_t kCount = 20000;
  TableModel model(std::vector<TableModel::Table>(kCount, misleading()));
  std::vector<Generator> randoms;
  for (std::size_t i = 0; i < kCount; ++i) randoms.emplace_back(7, i);
  double ends_at_b = 0, ends_at_a = 0;
  search_samples(model, std::vector<Index>(kCount, 3), config_of(1), {}, randoms,
                 [&](std::size_t, const Hypothesis& drawn) {
                   ends_at_b += drawn.tokens == TokenIds{5} ? 1.0 / kCount : 0;
                   ends_at_a += drawn.tokens == TokenIds{4} ? 1.0 / kCount : 0;
                   if (drawn.tokens == TokenIds{4})
                     CHECK_BELOW(deviation(drawn.log_probability, std::log(0.18)), 1e-6);
                 });
  CHECK_BELOW(std::abs(ends_at_b - 0.4), kDeviations * std::sqrt(0.4 * 0.6 / kCount));
  CHECK_BELOW(std::abs(ends_at_a - 0.18), kDeviations * std::sqrt(0.18 * 0.82 / kCount));
}

TEST_CASE("samples take the likeliest at temperature 0, and refuse a repetition penalty") {
  TableModel model({misleading()});
  std::vector<Generator> randoms = {Generator(test_seed(7))};
  SamplingConfig sampling;
  sampling.temperature = 0;
  Hypothesis drawn;
  const auto draw = [&] {
    search_samples(model, {3}, config_of(1), sampling, randoms,
                   [&](std::size_t, const Hypothesis& each) { drawn = each; });
  };
  draw();
  TableModel same({misleading()});
  CHECK(drawn.tokens == found(same, {3}, config_of(1))[0].tokens);
  sampling.repetition_penalty = 1.5;
  CHECK(message_of<Error>(draw) == "[sample] a repetition_penalty is for continuing texts; got 1.5; try 1");
}

TEST_CASE(
    "on a GPU a search reads a large vocabulary's likeliest tokens alone, and finds what it finds on the "
    "CPU") {
  constexpr Index kVocabulary = 40000;
  Generator random(test_seed(3));
  const Tensor here = Tensor::empty({4, kVocabulary}, DType::f64, Device::cpu());
  for (Index i = 0; i < here.elements(); ++i)
    here.data<double>()[i] = static_cast<double>(random.below(500));  // some 80 are the largest
  const Tensor there = here.to(default_device());
  std::vector<SearchConfig> configs(5, config_of(3));
  configs[1].never = {11, 5000, 39999, 50000};
  for (Index token = 0; token < kVocabulary; ++token)  // most of the likeliest
    if (here.data<double>()[token] > 497 && configs[2].never.size() < 300)
      configs[2].never.push_back(static_cast<std::int32_t>(token));
  configs[3].no_repeat_ngram = 1, configs[3].min_tokens = 2;
  configs[4].renormalize = true, configs[4].never = configs[1].never;
  for (const SearchConfig& config : configs) {
    CAPTURE(&config - configs.data());
    WideModel on_cpu(here), on_device(there);
    const auto expected = found(on_cpu, {3, 2}, config), got = found(on_device, {3, 2}, config);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].tokens == expected[i].tokens);
      CHECK_BELOW(deviation(got[i].log_probability, expected[i].log_probability), 1e-12);
    }
  }
  std::vector<SamplingConfig> samplings(5);
  samplings[1].temperature = 0;
  samplings[2].top_k = 40;
  samplings[3].top_k = 40, samplings[3].top_p = 0.9, samplings[3].min_p = 0.01;
  samplings[4].top_k = std::numeric_limits<Index>::max();
  for (const SamplingConfig& sampling : samplings) {
    CAPTURE(&sampling - samplings.data());
    std::vector<TokenIds> drawn[2];
    for (const bool is_here : {true, false}) {
      WideModel model(is_here ? here : there);
      std::vector<Generator> randoms(4, Generator(test_seed(9)));
      search_samples(model, {2, 2, 2, 2}, configs[1], sampling, randoms,
                     [&](std::size_t, const Hypothesis& one) { drawn[is_here].push_back(one.tokens); });
    }
    CHECK(drawn[0] == drawn[1]);
  }
  here.data<double>()[3 * kVocabulary - 1] = std::nan("");
  WideModel diverged(here.to(default_device()));
  CHECK(message_of<Error>([&] {
          found(diverged, {3, 3}, configs[0]);
        }).find("must be a finite number; got nan") != std::string::npos);
}

TEST_CASE("logits that are not numbers, or of which none is finite, are refused by every search") {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const auto refusal = [&](Index beam, const std::vector<double>& probabilities) {
    TableModel::Table table = misleading();
    table[4] = probabilities;  // of the second token of one sentence among others
    TableModel model({misleading(), table, certain(false)});
    return message_of<Error>([&] { found(model, {5, 5, 5}, config_of(beam)); });
  };
  const auto sampled = [&](double temperature, const std::vector<double>& probabilities) {
    TableModel model({TableModel::Table(6, probabilities)});
    std::vector<Generator> randoms = {Generator(test_seed(7))};
    SamplingConfig sampling;
    sampling.temperature = temperature;
    return message_of<Error>([&] {
      search_samples(model, {3}, config_of(1), sampling, randoms, [](std::size_t, const Hypothesis&) {});
    });
  };
  const std::string rule = "] the highest logit must be a finite number; got ",
                    asked = " among 6; has the model diverged, or is every token excluded?";
  for (const std::vector<double>& one : {std::vector<double>{0.1, 0.1, 0.1, 0.1, nan, 0.1},
                                         {nan, nan, nan, nan, nan, nan},
                                         {0.1, 0.1, 0.1, 0.1, infinity, 0.1}}) {
    for (const Index beam : {1, 2, 5}) CHECK(refusal(beam, one) == "[beam_search" + rule + "nan" + asked);
    for (const double temperature : {0, 1})
      CHECK(sampled(temperature, one) == "[sample" + rule + "nan" + asked);
  }
  const std::vector<double> nothing(6, 0.0);
  for (const Index beam : {1, 2, 5}) {
    CHECK(refusal(beam, nothing) == "[beam_search" + rule + "-inf" + asked);
  }
  CHECK(sampled(0, nothing) == "[sample" + rule + "-inf" + asked);
}

TEST_CASE("outputs begin with forced tokens, repeat no n tokens, and have a least length") {
  const auto output = [](bool ends_at_once, const TokenIds& forced, Index no_repeat, Index least) {
    TableModel model({certain(ends_at_once)});
    SearchConfig config = config_of(1);
    config.forced = forced, config.no_repeat_ngram = no_repeat, config.min_tokens = least;
    return found(model, {5}, config)[0].tokens;
  };
  CHECK(output(false, {5, 1}, 0, 0) == TokenIds{5, 1, 4, 4, 4});
  CHECK(output(false, {5, 1, 5, 1, 5}, 0, 0) == TokenIds{5, 1, 5, 1, 5});
  CHECK(output(false, {}, 1, 0) == TokenIds{4, 0, 1});
  CHECK(output(false, {}, 2, 0) == TokenIds{4, 4, 0, 4, 1});
  CHECK(output(false, {}, 3, 0) == TokenIds{4, 4, 4, 0, 4});
  CHECK(output(true, {}, 0, 2) == TokenIds{0, 0});
  CHECK(output(true, {5}, 0, 2) == TokenIds{5, 0});
  CHECK(output(true, {5}, 0, 1) == TokenIds{5});
}

TEST_CASE("the others share all of the probability, however little is left of it") {
  TableModel model({TableModel::Table(6, {1e-30, 1e-30, 1e-30, 1, 1e-30, 1e-30})});
  SearchConfig config = config_of(1);
  config.renormalize = true, config.min_tokens = 2;
  CHECK_BELOW(deviation(found(model, {5}, config)[0].log_probability, -2 * std::log(5)), 1e-6);
}

TEST_CASE("a token that a model lacks is forbidden without an effect on other rows") {
  const TableModel::Table table(6, {0.1, 0.1, 0.1, 0.1, 0.1, 0.5});
  TableModel model({table, table});
  SearchConfig config = config_of(1);
  config.never = {-1, 6};
  for (const Hypothesis& one : found(model, {2, 2}, config)) CHECK(one.tokens == TokenIds{5, 5});
}

TEST_CASE("a token whose logit is minus infinity is never in a hypothesis, however wide the beam") {
  TableModel::Table table(6, {0, 0, 0, 0, 0, 1});
  table[5] = {0, 0, 0, 0, 1, 0};
  SearchConfig config = config_of(1);
  config.end = 0;  // the first impossible one
  for (config.beam = 1; config.beam < 50; ++config.beam) {
    TableModel model({table});
    const Hypothesis best = found(model, {4}, config)[0];
    CHECK(best.tokens == TokenIds{5, 4, 5, 4});
    CHECK_BELOW(deviation(best.score, 0), 1e-6);
  }
}

TEST_CASE("a beam goes on while a longer output may still score better") {
  const std::vector<double> on = {1e-9, 1e-9, 1e-9, 1e-9, 1, 1e-9};
  const TableModel::Table table = {on, on, {0.05, 0.05, 1e-9, 0.4, 0.3, 0.2}, on, on, on};
  TableModel model({table});
  SearchConfig config = config_of(2);
  config.length_penalty = 1;
  const Hypothesis best = found(model, {9}, config)[0];
  CHECK(best.tokens == TokenIds(9, 4));  // the output that ends at once has log(0.4)
  CHECK_BELOW(deviation(best.score, std::log(0.3) / (14.0 / 6)), 1e-6);
}

TEST_CASE("a beam goes on while the next end may still score better, if short outputs are favoured") {
  const std::vector<double> ends = {1e-9, 1e-9, 1e-9, 1, 1e-9, 1e-9};
  const TableModel::Table table = {ends, ends, {1e-9, 1e-9, 1e-9, 0.3, 0.6, 0.1}, ends, ends, ends};
  for (const double alpha : {-2.0, -1.0, -0.1}) {
    TableModel model({table});
    SearchConfig config = config_of(2);
    config.length_penalty = alpha;
    const Hypothesis best = found(model, {60}, config)[0];
    CHECK(best.tokens == TokenIds{4});
    CHECK_BELOW(deviation(best.score, std::log(0.6) * std::pow(7.0 / 6, -alpha)), 1e-6);
  }
}

TEST_CASE("with transformers' rules, outputs and scores are those of `generate`") {
  const auto golden = parse_json(read_file(TAPEFORMER_SOURCE_DIR "/tests/golden/search.json"));
  for (const auto& one : golden.at("cases")) {
    CAPTURE(one.dump());
    auto logits = golden.at("tables").at(one[0].get<std::size_t>()).get<std::vector<double>>();
    for (double& logit : logits) logit /= 400;
    PlacedTableModel model(logits);
    SearchConfig config;
    config.end = 0, config.begin = 11, config.never = {11, 5};
    config.beam = config.n_best = one[1].get<Index>();
    config.transformers = TransformersRules{kind_named<EarlyStopping>(one[2]), one[4].get<bool>()};
    config.length_penalty = one[3].get<double>();
    config.renormalize = one[8].get<bool>();
    const Index limit = one[5].get<Index>() - (config.transformers->forced_end ? 2 : 1);
    Hypothesis best = found(model, {limit}, config)[0];
    std::vector<TokenIds> outputs = {best.tokens};
    std::vector<double> scores = {best.score};
    for (const Hypothesis& other : best.others)
      outputs.push_back(other.tokens), scores.push_back(other.score);
    CHECK(outputs == one[6].get<std::vector<TokenIds>>());
    for (std::size_t i = 0; i < one[7].size(); ++i)
      CHECK_BELOW(deviation(scores.at(i), one[7][i].get<double>()), 4e-5);
  }
}
