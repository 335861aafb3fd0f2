#include <tapeformer/nn/generation/generate.h>
#include <tapeformer/tests/nn/generation/decoding_case.h>

using namespace tapeformer;

namespace {

enum class Method { greedy, beams, samples };

std::vector<Hypothesis> found(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                              Method method, const std::optional<CacheConfig>& cache, Index max_tokens) {
  SearchConfig config;
  config.max_tokens = max_tokens;
  config.batch = 2;  // sources of different lengths in one batch
  config.cache = cache;
  config.beam = method == Method::beams ? 3 : 1;
  if (method != Method::samples) return beam_search(model, sources, config);
  SamplingConfig sampling;
  sampling.temperature = 1.5;
  sampling.top_k = 8;
  sampling.top_p = 0.95;
  sampling.seed = test_seed(11);
  return sample(model, sources, sampling, config);
}

/// Outputs that differ in a token.
int differing(const std::vector<Hypothesis>& a, const std::vector<Hypothesis>& b) {
  int differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    differ += a[i].tokens != b[i].tokens || std::fabs(a[i].score - b[i].score) > 1e-9;
  return differ;
}

}  // namespace

TEST_CASE_FIXTURE(SingleThread,
                  "sentences that end at different times and leave the cache do not change the others") {
  std::size_t endings = 0;
  for (const DecoderKind& kind : decoder_kinds()) {
    const EncoderDecoder model = decoding_model(kind, 33, DType::f64, -0.5);
    const auto sources = decoding_sources({3, 7, 1, 12, 5, 5, 4, 9, 2}, 8);
    for (const Method method : {Method::greedy, Method::beams, Method::samples}) {
      const auto plain = found(model, sources, method, std::nullopt, 60);
      for (const CacheKind cache : {CacheKind::contiguous, CacheKind::paged}) {
        INFO(kind.name(), ", ", name_of(cache), ", method ", static_cast<int>(method));
        CHECK(differing(found(model, sources, method, CacheConfig{cache, 0, 4}, 60), plain) == 0);
      }
      for (const Hypothesis& hypothesis : plain) endings += hypothesis.tokens.size() < 60;
    }
  }
  CHECK(endings > decoder_kinds().size());
}

TEST_CASE_FIXTURE(SingleThread, "rotary positions go on past the context to their limit, and then say so") {
  EncoderDecoderConfig config = decoding_config(decoder_kinds()[2], 33);
  REQUIRE(config.positions == PositionKind::rotary);
  config.layer.attention.rotations.max_positions = 50;
  auto model = fresh_module<EncoderDecoder>(config);
  parameter_of(model, "head.bias").value().data<float>()[kEndId] = -1e4F;
  model.eval();
  const auto sources = decoding_sources({3, 32}, 3);
  SearchConfig search;
  for (const auto& cache : {std::optional<CacheConfig>(), std::optional<CacheConfig>(CacheConfig{})}) {
    search.cache = cache;
    search.max_tokens = 50;
    for (const Hypothesis& found : beam_search(model, sources, search)) CHECK(found.tokens.size() == 50);
    search.max_tokens = 51;
    CHECK(message_of<ShapeError>([&] { beam_search(model, sources, search); }) ==
          "[beam_search] the model's rotary positions end after 50; got max_tokens=51; try fewer tokens");
    const Tensor memory = model.encode(ids_of({4, 5, kEndId}, {1, 3}), {});
    TranslationSteps steps(model, memory, {}, cache);
    for (int t = 0; t < 50; ++t) steps.step({4});
    CHECK(message_of<ShapeError>([&] { steps.step({4}); }).find("50") != std::string::npos);
  }
  search.max_tokens = 0;
  CHECK(beam_search(model, sources, search)[1].tokens.size() == 32);
}

TEST_CASE_FIXTURE(SingleThread, "samples are a function of seed and source, not of the batch") {
  const EncoderDecoder model = decoding_model(decoder_kinds()[0], 40, DType::f64, -2);
  const auto sources = decoding_sources({3, 7, 1, 12, 5, 5, 4, 9, 2}, 8);
  SamplingConfig sampling;
  sampling.seed = test_seed(5);
  SearchConfig config;
  config.max_tokens = 30;
  const auto together = sample(model, sources, sampling, config);
  config.batch = 1;
  const auto alone = sample(model, sources, sampling, config);
  sampling.seed = test_seed(6);
  const auto others = sample(model, sources, sampling, config);
  std::size_t same_as_others = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    CHECK(together[i].tokens == alone[i].tokens);
    CHECK_BELOW(deviation(together[i].log_probability, alone[i].log_probability), 1e-9);
    same_as_others += together[i].tokens == others[i].tokens;
  }
  CHECK(same_as_others < sources.size());  // some may end at once with both seeds
  sampling.top_k = 1;
  config.length_penalty = 0;
  const auto likeliest = sample(model, sources, sampling, config),
             greedy = beam_search(model, sources, config);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    CHECK(likeliest[i].tokens == greedy[i].tokens);
    CHECK_BELOW(deviation(likeliest[i].score, greedy[i].score), 1e-12);
  }
}
