#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/generation/generate.h>
#include <tapeformer/tests/nn/module_case.h>

#include <algorithm>

using namespace tapeformer;

namespace {

constexpr std::int32_t kBegin = 2, kEnd = 3;

EncoderDecoderConfig tiny_config(Index vocabulary, Index max_length) {
  EncoderDecoderConfig config;
  config.layer.width = 8;
  config.layer.attention.heads = 2;
  config.layer.feed_forward = 16;
  config.source_vocabulary = config.target_vocabulary = vocabulary;
  config.encoder_layers = config.decoder_layers = 1;
  config.max_length = max_length;
  return config;
}

/// An untrained model whose next token depends strongly on everything before it; in f64, so that roundings
/// order no two outputs.
EncoderDecoder random_model(Index vocabulary, Index max_length, std::uint64_t seed) {
  Generator random(test_seed(seed));
  EncoderDecoder model(tiny_config(vocabulary, max_length), random);
  for (auto& [name, parameter] : model.named_parameters()) {
    const bool is_gain = name.find("norm.weight") != std::string::npos;
    random.fill_normal(parameter.value(), is_gain ? 1 : 0, 0.7);
  }
  model.to(DType::f64);
  model.eval();
  return model;
}

/// log p of `output` (with its end token or without) given `source`, by teacher forcing.
double log_probability(const EncoderDecoder& model, TokenIds source, const TokenIds& output) {
  source.push_back(kEnd);
  TokenIds input(output.begin(), output.end() - 1);
  input.insert(input.begin(), kBegin);
  const Tensor source_ids = ids_of(source, {1, static_cast<Index>(source.size())});
  const Tensor log_p =
      log_softmax(model(source_ids, {}, ids_of(input, {1, static_cast<Index>(input.size())})));
  double total = 0;
  for (std::size_t t = 0; t < output.size(); ++t)
    total += log_p.at(static_cast<Index>(t) * log_p.size(-1) + output[t]);
  return total;
}

double penalised(double log_p, std::size_t length, double alpha) {
  return log_p / std::pow((5 + static_cast<double>(length)) / 6, alpha);
}

/// The best of all outputs of at most `limit` tokens, tried one after the other, and the others.
Hypothesis exhaustive(const EncoderDecoder& model, const TokenIds& source, Index limit, double alpha) {
  std::vector<Hypothesis> all;
  std::vector<TokenIds> unfinished = {{}};
  for (Index length = 1; length <= limit; ++length) {
    std::vector<TokenIds> longer;
    for (const TokenIds& prefix : unfinished) {
      for (std::int32_t token = 0; token < model.config().target_vocabulary; ++token) {
        TokenIds output = prefix;
        output.push_back(token);
        if (token != kEnd && length < limit) {
          longer.push_back(output);
          continue;
        }
        const double log_p = log_probability(model, source, output);
        all.push_back({output, log_p, penalised(log_p, output.size(), alpha)});
        if (token == kEnd) all.back().tokens.pop_back();
      }
    }
    unfinished = std::move(longer);
  }
  std::sort(all.begin(), all.end(),
            [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  Hypothesis best = all.front();
  best.others.assign(all.begin() + 1, all.end());
  return best;
}

SearchConfig search_config(Index beam, double alpha = 0.6, Index max_tokens = 0, Index batch = 64) {
  SearchConfig config;
  config.beam = beam;
  config.length_penalty = alpha;
  config.max_tokens = max_tokens;
  config.batch = batch;
  return config;
}

std::vector<TokenIds> random_sources(Index count, Index longest, Index vocabulary, std::uint64_t seed) {
  Generator random(test_seed(seed));
  std::vector<TokenIds> sources;
  for (Index i = 0; i < count; ++i) {
    TokenIds source(static_cast<std::size_t>(1 + random.below(longest)));
    for (std::int32_t& token : source) token = static_cast<std::int32_t>(4 + random.below(vocabulary - 4));
    sources.push_back(source);
  }
  return sources;
}

/// Changes the end token's bias so that it is the likeliest first token of about half of the sources: of so
/// many that its probability is farthest from another token's.
void end_half_at_once(EncoderDecoder& model, const std::vector<TokenIds>& sources) {
  std::vector<double> leads;
  for (const TokenIds& source : sources) {
    double best = -1e300;
    for (std::int32_t token = 0; token < model.config().target_vocabulary; ++token)
      if (token != kEnd) best = std::max(best, log_probability(model, source, {token}));
    leads.push_back(best - log_probability(model, source, {kEnd}));
  }
  std::sort(leads.begin(), leads.end());
  std::size_t middle = leads.size() / 3;
  for (std::size_t i = middle; i < 2 * leads.size() / 3; ++i)
    if (leads[i] - leads[i - 1] > leads[middle] - leads[middle - 1]) middle = i;
  parameter_of(model, "head.bias").value().data<double>()[kEnd] += (leads[middle - 1] + leads[middle]) / 2;
}

}  // namespace

TEST_CASE(
    "a beam as wide as everything finds the best of all outputs, and as many of the next best as are asked "
    "for") {
  const SingleThread guard;
  const EncoderDecoder model = random_model(5, 9, 1);
  for (const double alpha : {-0.5, 0.0, 0.6, 2.0}) {
    const Hypothesis expected = exhaustive(model, {4, 1, 4}, 4, alpha);
    const std::size_t all = expected.others.size();
    for (const std::size_t asked : {std::size_t{1}, std::size_t{7}, all + 9}) {
      SearchConfig config = search_config(625, alpha, 4);
      config.n_best = static_cast<Index>(asked) + 1;
      const Hypothesis found = beam_search(model, {{4, 1, 4}}, config)[0];
      CAPTURE(alpha);
      CHECK(found.tokens == expected.tokens);
      CHECK_BELOW(deviation(found.log_probability, expected.log_probability), 1e-12);
      CHECK_BELOW(deviation(found.score, expected.score), 1e-12);
      REQUIRE(found.others.size() == std::min(asked, all));
      for (std::size_t i = 0; i < found.others.size(); ++i) {
        CHECK_BELOW(deviation(found.others[i].score, expected.others[i].score), 1e-12);
        CHECK(found.others[i].others.empty());
      }
    }
    CHECK(beam_search(model, {{4, 1, 4}}, search_config(5, alpha, 4))[0].others.empty());
  }
}

TEST_CASE("outputs depend neither on the rest of the batch nor on its order") {
  const SingleThread guard;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    EncoderDecoder model = random_model(7, 12, seed);
    const auto sources = random_sources(24, 6, 7, 10 + seed);
    end_half_at_once(model, sources);  // so that the others' rows move up
    for (const Index beam : {1, 2, 4}) {
      const auto alone = beam_search(model, sources, search_config(beam, 0, 0, 1));
      for (const Index batch : {2, 3, 7, 64}) {
        const auto together = beam_search(model, sources, search_config(beam, 0, 0, batch));
        std::size_t differ = 0;
        for (std::size_t i = 0; i < sources.size(); ++i) {
          differ +=
              together[i].tokens != alone[i].tokens || std::fabs(together[i].score - alone[i].score) > 1e-10;
        }
        INFO("seed ", seed, ", beam ", beam, ", batch ", batch);
        CHECK(differ == 0);
      }
    }
  }
}

TEST_CASE("outputs end at the limit, or by default at twice the source and ten, within the model's length") {
  const SingleThread guard;
  EncoderDecoder model = random_model(7, 40, 1);
  parameter_of(model, "head.bias").value().data<double>()[kEnd] = -1e4;  // never ends by itself
  for (const Index beam : {1, 3}) {
    CHECK(beam_search(model, {{4}}, search_config(beam, 0.6, 5))[0].tokens.size() == 5);
    CHECK(beam_search(model, {{4, 5, 4}}, search_config(beam))[0].tokens.size() == 16);
    CHECK(beam_search(model, {{4}}, search_config(beam, 0.6, 100))[0].tokens.size() == 100);
    SearchConfig by_length = search_config(beam);
    by_length.length_factor = 1.5;
    CHECK(beam_search(model, {{4, 5, 4, 5}}, by_length)[0].tokens.size() == 7);  // and the end
    CHECK(beam_search(model, {TokenIds(39, 4)}, search_config(beam))[0].tokens.size() == 39);
  }
}

TEST_CASE("progress counts the finished sentences; no sentences give no results; nothing is recorded") {
  const SingleThread guard;
  const EncoderDecoder model = random_model(7, 12, 1);
  std::vector<Index> reported;
  SearchConfig config = search_config(2, 0.6, 0, 4);
  config.progress = [&](Index done) { reported.push_back(done); };
  Tape tape;
  beam_search(model, random_sources(10, 6, 7, 2), config);
  REQUIRE_FALSE(reported.empty());
  CHECK(std::is_sorted(reported.begin(), reported.end()));
  CHECK(reported.back() == 10);
  CHECK(beam_search(model, {}, config).empty());
  CHECK(tape.memory().nodes == 0);
}

TEST_CASE("an empty source has an empty output and does not change those of the others") {
  const SingleThread guard;
  const EncoderDecoder model = random_model(7, 12, 1);
  const std::vector<TokenIds> sources = random_sources(3, 6, 7, 2);
  std::vector<Index> reported;
  SearchConfig config = search_config(2, 0.6, 0, 4);
  config.progress = [&](Index done) { reported.push_back(done); };
  const std::vector<Hypothesis> alone = beam_search(model, sources, config),
                                among =
                                    beam_search(model, {{}, sources[0], {}, sources[1], sources[2]}, config);
  REQUIRE(among.size() == 5);
  CHECK(among[0].tokens.empty());
  CHECK(among[2].tokens.empty());
  CHECK(among[1].tokens == alone[0].tokens);
  CHECK(among[3].tokens == alone[1].tokens);
  CHECK(among[4].tokens == alone[2].tokens);
  CHECK(reported.back() == 5);
  CHECK(beam_search(model, {{}}, config)[0].tokens.empty());
  CHECK(sample(model, {{}, sources[0]}, {}, config)[0].tokens.empty());
}

TEST_CASE("sources that are too long, and a beam of nothing, are refused") {
  const SingleThread guard;
  const EncoderDecoder model = random_model(7, 6, 1);
  CHECK(beam_search(model, {TokenIds(5, 4)}).size() == 1);
  CHECK_THROWS_WITH_AS(beam_search(model, {{4}, TokenIds(6, 4)}),
                       "[beam_search] a source must have at most 5 tokens; got 6; try shorter sentences or a "
                       "model with a larger max_length",
                       ShapeError);
  CHECK(message_of<Error>([&] { beam_search(model, {{4}}, search_config(0)); }) ==
        "[beam_search] beam, n_best and batch must be at least 1; got beam=0, n_best=1, batch=64");
  SearchConfig more = search_config(3);
  more.n_best = 4;
  CHECK(message_of<Error>([&] { beam_search(model, {{4}}, more); }) ==
        "[beam_search] n_best must be from 1 to beam; got n_best=4, beam=3; try a larger beam");
  SearchConfig none;
  none.n_best = 0;
  CHECK(message_of<Error>([&] { sample(model, {{4}}, {}, none); }) ==
        "[sample] beam, n_best and batch must be at least 1; got beam=1, n_best=0, batch=64");
  CHECK(message_of<ShapeError>([&] { beam_search(model, {{7}}); }).find("[embedding]") == 0);
}

TEST_CASE("a MarianMT writes what `generate` of transformers writes, greedy and with four beams") {
  const std::string golden = TAPEFORMER_SOURCE_DIR "/tests/golden/";
  EncoderDecoder model = load_hugging_face<EncoderDecoder>(golden + "hugging_face/marian");
  model.to(DType::f64);
  parameter_of(model, "head.bias").value().data<double>()[0] += 2.3;
  SearchConfig config;
  config.begin = config.padding = 28, config.end = 0, config.never = {28};
  config.length_penalty = 1;
  config.max_tokens = 10;
  config.transformers.emplace();
  const auto cases = parse_json(read_file(golden + "search.json")).at("marian");
  std::vector<TokenIds> sources;
  for (const auto& one : cases) sources.push_back(one[0]);
  for (const std::size_t column : {1, 2}) {
    config.beam = column == 1 ? 1 : 4;
    const std::vector<Hypothesis> found = beam_search(model, sources, config);
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i].tokens == cases[i][column].get<TokenIds>());
  }
}
