#include <tapeformer/nn/generation/generate.h>
#include <tapeformer/nn/generation/generate_text.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/nn/cuda_graph_case.h>
#include <tapeformer/tests/nn/generation/decoding_case.h>
#include <tapeformer/tests/nn/generation/language_case.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <algorithm>

using namespace tapeformer;

namespace {

/// Runs rows twice: queued kernel by kernel, and as graphs.
template <class Steps>
struct Twins {
  Steps plain, graphs;
  Index rows = 1, replayed = 0, captured = 0;  // counts since the last time that the number of rows changed
  Generator random{test_seed(3)};

  template <class... Arguments>
  explicit Twins(const Arguments&... of)
      : plain(of..., CacheConfig{}, false), graphs(of..., CacheConfig{}, true) {}
  void step(Index vocabulary) {
    TokenIds tokens;
    for (Index row = 0; row < rows; ++row)
      tokens.push_back(static_cast<std::int32_t>(random.below(vocabulary)));
    CHECK(same(plain.step(tokens), graphs.step(tokens)));
    CHECK(replayed_in(plain) == 0);
    replayed = replayed_in(graphs);
    captured = graphs.replay() ? graphs.replay()->counts().captured : 0;
  }
  void reorder(const std::vector<std::int32_t>& order) {
    plain.reorder(order);
    graphs.reorder(order);
    rows = static_cast<Index>(order.size());
  }
  static Index replayed_in(const Steps& steps) {
    CHECK((!steps.replay() || steps.replay()->refusal() == ""));
    return steps.replay() ? steps.replay()->counts().replayed : 0;
  }
};

}  // namespace

// GPU steps run as graphs and give the logits of steps without graphs, whatever moves the cache.
TEST_CASE("texts continue as graphs to the same bits") {
  if (!has_gpu()) return;
  for (const LanguageKind& kind : language_kinds()) {
    if (kind.positions == PositionKind::sinusoidal || (kind.prefix && kind.attention != "mla"))
      continue;  // seconds in an emulator
    INFO(kind.name());
    DecoderOnly model = language_model(language_config(kind, 24), DType::f32);
    model.to(Device::cuda());
    if (kind.prefix) model.compute_in(DType::bf16);
    Twins<LanguageSteps> twins(model);
    const TokenIds prompt = random_tokens(20, 7);
    CHECK(same(twins.plain.prompt(prompt), twins.graphs.prompt(prompt)));
    twins.reorder({0, 0});
    Index replayed = 0;
    for (int step = 0; step < 20; ++step) {  // twice beyond the context; with rotary positions it grows
      INFO("step ", step);
      if (step % 7 == 6) twins.reorder({1, 0});
      twins.step(kLanguageVocabulary);
      replayed = std::max(replayed, twins.replayed);
    }
    CHECK(replayed > 9);
    CHECK(twins.captured == 1);
    MESSAGE(kind.name(), ": ", twins.graphs.replay()->nodes(), " kernels and copies a token");
  }
}

TEST_CASE("translations of sources of several lengths continue as graphs to the same bits") {
  if (!has_gpu()) return;
  const std::vector<std::size_t> numbers = {0, 2, 5, 8, 1, 4, 7, 9};  // the others are like one of these
  for (int next = 0; next < std::max(4, random_cases(8)); ++next) {
    const DecoderKind& kind = decoder_kinds()[numbers[static_cast<std::size_t>(next)]];
    INFO(kind.name());
    EncoderDecoder model = decoding_model(kind, 24, DType::f32, 0);
    model.to(Device::cuda());
    if (!kind.norm_first) model.compute_in(DType::bf16);
    const auto [memory, mask] = encoded_sources(model);
    const Tensor mask_before = mask.clone();
    Twins<TranslationSteps> twins(model, memory, mask);
    twins.rows = 5;
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) {
        INFO("step ", i, " of ", twins.rows, " rows");
        twins.step(11);
      }
    };
    steps(6);  // the first fills the caches, then one is queued, one captured
    CHECK(twins.captured == 1);
    CHECK(twins.replayed == 3);
    twins.reorder({0, 1, 2, 2, 0});  // rows move, and so does the memory that they read
    steps(3);
    twins.reorder({4, 3, 1, 0, 2});
    steps(3);
    CHECK(twins.captured == 1);
    CHECK(twins.replayed == 9);
    twins.reorder({1, 4, 2});  // two have ended
    steps(5);
    CHECK(twins.captured == 1);
    CHECK(twins.replayed == 3);
    twins.reorder({2});
    steps(4);
    CHECK(twins.replayed == 2);
    twins.reorder({0, 0});  // and beams of the rest
    // Beyond the context; with rotary positions the cache grows.
    steps(kind.positions == PositionKind::rotary ? 16 : 6);
    twins.reorder({1, 0});
    steps(1);
    CHECK(twins.captured == 1);
    CHECK(twins.replayed > 3);
    CHECK(same(mask, mask_before));  // the caller's
    MESSAGE(kind.name(), ": ", twins.graphs.replay()->nodes(), " kernels and copies a token");
  }
}

TEST_CASE("searches and samples find the same with graphs and without") {
  if (!has_gpu()) return;
  EncoderDecoder model = decoding_model(decoder_kinds()[0], 33, DType::f32, -0.5);
  model.to(Device::cuda());
  const auto sources = decoding_sources({3, 7, 1, 12, 5}, 8);
  const auto replayed = [] { return CudaGraphCache::counts_of_all().replayed; };
  for (const Index beam : {1, 3, 0}) {  // 0: tokens are drawn
    INFO("beam ", beam);
    SearchConfig config;
    config.beam = std::max<Index>(beam, 1);
    config.batch = 3;
    config.max_tokens = 14;
    SamplingConfig sampling;
    sampling.seed = test_seed(11);
    const auto found = [&](bool graphs) {
      config.graphs = graphs;
      return beam == 0 ? sample(model, sources, sampling, config) : beam_search(model, sources, config);
    };
    Index before = replayed();
    const auto plain = found(false);
    CHECK(replayed() == before);
    const auto graphs = found(true);
    CHECK(replayed() > before + 5);
    std::size_t shortest = 14;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      CHECK(graphs[i].tokens == plain[i].tokens);
      CHECK(graphs[i].log_probability == plain[i].log_probability);
      CHECK(graphs[i].score == plain[i].score);
      shortest = std::min(shortest, plain[i].tokens.size());
    }
    CHECK(shortest < 14);  // rows have left
  }
}

TEST_CASE("a text is the same with graphs and without") {
  if (!has_gpu()) return;
  DecoderOnly model = language_model(language_config(language_kinds()[0], 24), DType::f32);
  model.to(Device::cuda());
  TextGenerationConfig config;
  config.samples = 3, config.max_tokens = 14;
  const auto texts = [&](bool graphs) {
    config.graphs = graphs;
    std::vector<TokenIds> found(3);
    generate_text(model, {1, 2}, config, [&](Index sample, std::int32_t token) {
      found[static_cast<std::size_t>(sample)].push_back(token);
      return sample != 1 || found[1].size() < 6;
    });
    return found;
  };
  const Index before = CudaGraphCache::counts_of_all().replayed;
  const auto plain = texts(false);
  CHECK(CudaGraphCache::counts_of_all().replayed == before);
  CHECK(texts(true) == plain);
  CHECK(CudaGraphCache::counts_of_all().replayed > before + 5);
}

TEST_CASE("pages and a full cache take steps kernel by kernel") {
  if (!has_gpu()) return;
  EncoderDecoder model = decoding_model(decoder_kinds()[0], 24, DType::f32, 0);
  model.to(Device::cuda());
  const auto [memory, mask] = encoded_sources(model);
  for (const CacheConfig& cache :
       {CacheConfig{CacheKind::paged, 0, 4}, CacheConfig{CacheKind::contiguous, 4, 16}}) {
    TranslationSteps steps(model, memory, mask, cache);
    for (int i = 0; i < 4; ++i) steps.step({4, 5, 6, 7, 8});
    CHECK(steps.replay().has_value() == (cache.kind == CacheKind::contiguous));
    if (cache.capacity == 0) continue;
    CHECK_THROWS_WITH_AS(steps.step({4, 5, 6, 7, 8}), doctest::Contains("more than 4 tokens"), ShapeError);
  }
}
