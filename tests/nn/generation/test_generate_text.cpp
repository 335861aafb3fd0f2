#include <tapeformer/nn/generation/generate_text.h>
#include <tapeformer/tests/nn/generation/language_case.h>

#include <algorithm>
#include <limits>

using namespace tapeformer;

namespace {

/// The text that each sample received.
std::vector<TokenIds> generated(const DecoderOnly& model, const TokenIds& prompt,
                                const TextGenerationConfig& config) {
  std::vector<TokenIds> samples(static_cast<std::size_t>(config.samples));
  generate_text(model, prompt, config, [&](Index sample, std::int32_t token) {
    samples[static_cast<std::size_t>(sample)].push_back(token);
    return true;
  });
  return samples;
}

TextGenerationConfig greedy(Index max_tokens, const std::optional<CacheConfig>& cache = CacheConfig{}) {
  TextGenerationConfig config;
  config.sampling.temperature = 0;
  config.max_tokens = max_tokens;
  config.cache = cache;
  return config;
}

/// Greedy continuation, every token from the whole sequence.
TokenIds plain_greedy(const DecoderOnly& model, const TokenIds& prompt, Index max_tokens) {
  TokenIds row = prompt;
  for (Index i = 0; i < max_tokens; ++i)
    row.push_back(likeliest(whole_logits(model, row, static_cast<Index>(prompt.size()))));
  return {row.begin() + static_cast<std::ptrdiff_t>(prompt.size()), row.end()};
}

DecoderOnly plain_model() { return language_model(language_config({"mha", PositionKind::learned}, 9)); }

}  // namespace

TEST_CASE("a sample depends on seed and number alone, not on the other samples or the cache") {
  const SingleThread guard;
  DecoderOnly model = plain_model();
  const TokenIds prompt = random_tokens(4, 7);
  TextGenerationConfig config;
  config.max_tokens = 30;
  config.samples = 6;
  config.sampling.seed = test_seed(3);
  config.sampling.stream = 10;
  config.sampling.top_k = 7;
  config.sampling.repetition_penalty = 1.2;
  std::vector<TokenIds> together;
  std::size_t ended = 0;
  constexpr std::int32_t vocabulary = kLanguageVocabulary;
  for (std::int32_t i = 0; ended < 2 || ended == together.size(); ++i) {  // some reach it, not all
    REQUIRE(i < 20 * vocabulary);
    config.ends = {i % vocabulary};
    if (i > 0 && i % vocabulary == 0) randomise(model, static_cast<std::uint64_t>(i));
    together = generated(model, prompt, config);
    ended = static_cast<std::size_t>(std::count_if(
        together.begin(), together.end(), [](const TokenIds& sample) { return sample.size() < 30; }));
  }
  for (std::size_t i = 0; i < together.size(); ++i) {
    for (const std::int32_t token : together[i]) CHECK(token != config.ends[0]);
    TextGenerationConfig alone = config;
    alone.samples = 1;
    alone.sampling.stream += i;
    for (const auto& cache : kTextCaches) {
      alone.cache = cache;
      CHECK(generated(model, prompt, alone).front() == together[i]);
    }
    for (std::size_t other = 0; other < i; ++other)  // two that end at once may be alike
      CHECK((together[i].size() < 10 || together[i] != together[other]));
  }
  config.sampling.seed = test_seed(4);
  CHECK(generated(model, prompt, config) != together);
}

TEST_CASE_FIXTURE(SingleThread, "the tokens of prompt and sample count as seen, each sample's own alone") {
  const DecoderOnly model = plain_model();
  TextGenerationConfig config = greedy(7);
  config.sampling.repetition_penalty = 1e6;
  config.samples = 2;
  int others = 0;
  for (std::uint64_t seed = 1; seed <= 8 || (others == 0 && seed <= 80); ++seed) {
    const TokenIds prompt = random_tokens(5, seed);
    TokenIds row = prompt;
    for (int i = 0; i < 7; ++i) {
      const Tensor logits = whole_logits(model, row, 5).detach();
      for (Index token = 0; token < kLanguageVocabulary; ++token) {
        double& logit = logits.data<double>()[token];
        if (std::count(row.begin(), row.end(), token) > 0) logit *= logit > 0 ? 1e-6 : 1e6;
      }
      row.push_back(likeliest(logits));
    }
    const TokenIds expected(row.begin() + 5, row.end());
    CHECK(generated(model, prompt, config) == std::vector<TokenIds>{expected, expected});
    others += expected[0] != plain_greedy(model, prompt, 1)[0];  // so the prompt made a difference
  }
  CHECK(others >= 1);
}

TEST_CASE("a sample ends at the end token or when the caller says so, and the others go on") {
  const SingleThread guard;
  DecoderOnly model = plain_model();
  TokenIds prompt, expected;
  const auto other_token = [&] {
    return std::find_if(expected.begin(), expected.end(),
                        [&](std::int32_t token) { return token != expected[0]; });
  };
  for (std::uint64_t seed = 7; other_token() == expected.end(); ++seed) {  // some models repeat one token
    REQUIRE(seed < 100);
    randomise(model, seed);
    prompt = random_tokens(4, seed);
    expected = plain_greedy(model, prompt, 12);
  }
  TextGenerationConfig config = greedy(12);
  config.samples = 3;
  std::vector<TokenIds> samples(3);
  std::vector<Index> order;
  generate_text(model, prompt, config, [&](Index sample, std::int32_t token) {
    samples[static_cast<std::size_t>(sample)].push_back(token);
    order.push_back(sample);
    return sample != 1 || samples[1].size() < 2;
  });
  CHECK(samples[0] == expected);
  CHECK(samples[1] == TokenIds(expected.begin(), expected.begin() + 2));
  CHECK(samples[2] == expected);
  CHECK(std::vector<Index>(order.begin(), order.begin() + 8) == std::vector<Index>{0, 1, 2, 0, 1, 2, 0, 2});
  const auto other = other_token();
  config.ends = {*other};
  CHECK(generated(model, prompt, config) == std::vector<TokenIds>(3, TokenIds(expected.begin(), other)));
  config.ends = {*other, expected[0]};
  CHECK(generated(model, prompt, config) == std::vector<TokenIds>(3));
  config.ends.clear();
  config.max_tokens = 0;
  CHECK(generated(model, prompt, config) == std::vector<TokenIds>(3));
  int calls = 0;
  config.max_tokens = 5;
  generate_text(model, prompt, config, [&](Index, std::int32_t) { return ++calls < 0; });
  CHECK(calls == 3);
}

TEST_CASE("text that exceeds the model's positions or the cache is refused before the first token") {
  const SingleThread guard;
  DecoderOnlyConfig rotary = language_config({"mha", PositionKind::rotary}, 9);
  rotary.attention.rotations.max_positions = 14;
  const DecoderOnly model = language_model(rotary);
  const TokenIds prompt = random_tokens(4, 7);
  for (const auto& cache : kTextCaches) {
    CHECK(generated(model, prompt, greedy(11, cache)).front() == plain_greedy(model, prompt, 11));
    CHECK(message_of<ShapeError>([&] { generated(model, prompt, greedy(12, cache)); }) ==
          "[generate_text] the model's rotary positions are for 14 tokens; got a prompt of 4 and "
          "max_tokens=12; try fewer");
    CHECK_THROWS_AS(generated(model, random_tokens(15, 7), greedy(0, cache)), ShapeError);
    CHECK(message_of<ShapeError>(
              [&] { generated(model, prompt, greedy(std::numeric_limits<Index>::max(), cache)); })
              .find("[generate_text] the model's rotary positions are for 14 tokens; got a prompt of 4 and "
                    "max_tokens=9223372036854775807") == 0);
  }
  CHECK_THROWS_WITH_AS(
      generated(model, prompt, greedy(8, CacheConfig{CacheKind::paged, 10, 4})),
      "[generate_text] the cache has room for 10 tokens; got a prompt of 4 and max_tokens=8; try fewer",
      ShapeError);
  CHECK(generated(model, prompt, greedy(7, CacheConfig{CacheKind::paged, 10, 4})).front().size() == 7);

  // A context ends before such limits are reached; latent attention has rotary keys whatever the positions.
  DecoderOnlyConfig latent = language_config({"mla", PositionKind::learned}, 9);
  latent.attention.rotations.max_positions = 9;
  CHECK(generated(language_model(latent), prompt, greedy(20, CacheConfig{CacheKind::paged, 9, 4}))
            .front()
            .size() == 20);
  latent.attention.rotations.max_positions = 8;
  CHECK(message_of<ShapeError>([&] {
          generated(language_model(latent), prompt, greedy(20));
        }).find("[generate_text] the model's rotary positions are for 8 tokens") == 0);
  CHECK(generated(language_model(latent), prompt, greedy(5)).front().size() == 5);
  latent.attention = AttentionConfig("gla", 4), latent.attention.rotations.max_positions = 8;
  latent.attention_pattern = "DF", latent.full_attention = "mla";  // the second layer alone has rotary keys
  CHECK(message_of<ShapeError>([&] {
          generated(language_model(latent), prompt, greedy(20));
        }).find("[generate_text] the model's rotary positions are for 8 tokens") == 0);
  DecoderOnlyConfig state = language_config({"kda", PositionKind::rotary}, 9);
  state.attention.rotations.max_positions = 3;  // which rotate nothing
  CHECK(generated(language_model(state), prompt, greedy(5)).front().size() == 5);
}

TEST_CASE_FIXTURE(SingleThread, "bad numbers and prompts outside the vocabulary are refused") {
  const DecoderOnly model = plain_model();
  const auto message = [&](const TokenIds& prompt, const TextGenerationConfig& config) {
    return message_of<Error>([&] { generated(model, prompt, config); });
  };
  // Even where the context has no place for it.
  CHECK(message(TokenIds(20, 99), greedy(3)).find("got 99") != std::string::npos);
  TextGenerationConfig bad = greedy(3);
  bad.sampling.temperature = -1;
  CHECK(message({1}, bad).find("[sample] temperature") == 0);
  CHECK(message({1}, greedy(-1)) ==
        "[generate_text] samples must be positive and max_tokens not negative; got samples=1, max_tokens=-1");
  bad = greedy(3);
  bad.samples = 0;
  CHECK(message({1}, bad).find("got samples=0") != std::string::npos);
}

TEST_CASE_FIXTURE(SingleThread, "nothing is recorded") {
  const DecoderOnly model = plain_model();
  Tape tape;
  generated(model, {1, 2}, greedy(4));
  CHECK(tape.memory().nodes == 0);
}
