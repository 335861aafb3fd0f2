#include <tapeformer/autograd/profile.h>
#include <tapeformer/nn/generation/language_steps.h>
#include <tapeformer/tests/nn/generation/language_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <deque>

using namespace tapeformer;

namespace {

std::string name_of(const std::optional<CacheConfig>& cache) {
  return cache ? tapeformer::name_of(cache->kind) : "without cache";
}

/// Checks the logits with each cache and without against those of whole sequences, over `count` steps of
/// random tokens; rows are reordered, repeated and dropped on the way.
void check_steps(const DecoderOnly& model, Index prompt, int count) {
  std::deque<LanguageSteps> ways;
  std::vector<TokenIds> rows = {random_tokens(prompt, 7)};
  TensorList logits;
  for (const auto& cache : kTextCaches) logits.push_back(ways.emplace_back(model, cache).prompt(rows[0]));
  Generator random(test_seed(4));
  for (int step = 0; step < count; ++step) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Tensor expected = whole_logits(model, rows[i], prompt);
      for (std::size_t way = 0; way < ways.size(); ++way) {
        INFO(name_of(kTextCaches[way]));
        REQUIRE(logits[way].size(0) == static_cast<Index>(rows.size()));
        CHECK_BELOW(relative_error(slice(logits[way], 0, static_cast<Index>(i), 1), expected), 1e-12);
      }
    }
    if (step == 0 || random.below(4) == 0) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(1 + random.below(3)));
      std::vector<TokenIds> next;
      for (std::int32_t& row : order) {
        row = static_cast<std::int32_t>(random.below(static_cast<Index>(rows.size())));
        next.push_back(rows[static_cast<std::size_t>(row)]);
      }
      for (LanguageSteps& steps : ways) steps.reorder(order);
      rows = next;
    }
    TokenIds tokens;
    for (TokenIds& row : rows) {
      tokens.push_back(static_cast<std::int32_t>(random.below(kLanguageVocabulary)));
      row.push_back(tokens.back());
    }
    for (std::size_t way = 0; way < ways.size(); ++way) logits[way] = ways[way].step(tokens);
  }
}

}  // namespace

TEST_CASE("logits are those of whole sequences with every cache and without, past the context too") {
  const SingleThread guard;
  for (const LanguageKind& kind : language_kinds()) {
    const DecoderOnly model = language_model(language_config(kind, 9));
    for (const Index prompt : {1, 4, 9, 23}) {  // 23: longer than the context
      INFO(kind.name(), ", prompt of ", prompt);
      check_steps(model, prompt, fewer_if_sanitized(24));
    }
  }
}

TEST_CASE("rotary positions go on past the context to their stated limit, and the step beyond is refused") {
  const SingleThread guard;
  DecoderOnlyConfig config = language_config({"gqa", PositionKind::rotary}, 9);
  config.attention.rotations.max_positions = 14;
  const DecoderOnly model = language_model(config);
  for (const auto& cache : kTextCaches) {
    INFO(name_of(cache));
    LanguageSteps steps(model, cache);
    TokenIds row = random_tokens(12, 7);
    steps.prompt(row);
    for (int i = 0; i < 2; ++i) {
      row.push_back(3);
      CHECK_BELOW(relative_error(steps.step({3}), whole_logits(model, row, 12)), 1e-12);
    }
    for (int again = 0; again < 2; ++again)
      CHECK(message_of<ShapeError>([&] { steps.step({3}); }).find("14") != std::string::npos);
    LanguageSteps again(model, cache);
    CHECK_THROWS_WITH_AS(again.prompt(random_tokens(15, 7)), doctest::Contains("14"), ShapeError);
    CHECK_BELOW(relative_error(again.prompt(row), whole_logits(model, row, 12)), 1e-12);
  }
}

TEST_CASE_FIXTURE(SingleThread, "after a step that throws, another goes on where the last good one ended") {
  const DecoderOnly model = language_model(language_config({"mha", PositionKind::learned, true}, 9));
  for (const auto& cache : kTextCaches) {
    INFO(name_of(cache));
    LanguageSteps steps(model, cache);
    TokenIds row = random_tokens(4, 7);
    CHECK(message_of<ShapeError>([&] { steps.step({1}); }) ==
          "[step] there is no row yet to extend; try prompt() first");
    CHECK(message_of<ShapeError>([&] { steps.prompt({}); }) ==
          "[prompt] the prompt must have a token; got none; try one that begins texts");
    CHECK_THROWS_WITH_AS(steps.prompt({1, -1}), "[prompt] tokens must be within the vocabulary of 13; got -1",
                         ShapeError);
    steps.prompt(row);
    CHECK(message_of<Error>([&] { steps.prompt(row); }).find("[prompt] the prompt is set already") == 0);
    CHECK(message_of<ShapeError>([&] { steps.step({13}); }) ==
          "[step] tokens must be within the vocabulary of 13; got 13");
    CHECK(message_of<ShapeError>([&] { steps.step({1, 2}); }).find("got 2 for 1 row") != std::string::npos);
    CHECK_THROWS_WITH_AS(steps.reorder({0, 1}), "[reorder] rows must exist; got row 1 of 1", ShapeError);
    row.push_back(2);
    CHECK_BELOW(relative_error(steps.step({2}), whole_logits(model, row, 4)), 1e-12);
    steps.reorder({});
    CHECK(message_of<ShapeError>([&] { steps.step({}); }).find("got 0 for 0 rows") != std::string::npos);
  }
}

TEST_CASE_FIXTURE(SingleThread, "a call that throws half way through the layers can be made again") {
  for (const auto& cache : kTextCaches) {
    for (const std::size_t length : {4, 9}) {  // with 9 the next token drops half of the context
      INFO(name_of(cache), ", prompt of ", length);
      DecoderOnly model = language_model(language_config({"mha", PositionKind::learned, true}, 9));
      Parameter late = parameter_of(model, "layers.1.feed_forward.up.weight");
      const Tensor good = late.value(), bad = good.to(DType::f32);
      const auto fails = [&](const auto& call) {
        late.set_value(bad);
        CHECK_THROWS_AS(call(), DTypeError);
        late.set_value(good);
      };
      LanguageSteps steps(model, cache);
      TokenIds row = random_tokens(static_cast<Index>(length), 7);
      fails([&] { steps.prompt(row); });
      steps.prompt(row);
      for (int i = 0; i < 3; ++i) {
        fails([&] { steps.step({3}); });
        row.push_back(3);
        CHECK_BELOW(relative_error(steps.step({3}), whole_logits(model, row, static_cast<Index>(length))),
                    1e-12);
      }
    }
  }
}

TEST_CASE("with a cache a step costs only its new tokens, except where the context moves") {
  const SingleThread guard;
  const DecoderOnly model = language_model(language_config({"mha", PositionKind::learned}, 9));
  for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
    LanguageSteps steps(model, CacheConfig{kind, 0, 4});
    steps.prompt(random_tokens(8, 7));
    std::vector<Index> flops;
    for (int i = 0; i < 8; ++i) {
      const Profile profile;
      steps.step({3});
      flops.push_back(profile.flops(false));
    }
    // The tenth token evicts 5 of the first 9, and so does every fifth token after it.
    for (std::size_t i = 0; i < flops.size(); ++i) {
      INFO("step ", i);
      CHECK((flops[i] > 3 * flops[0]) == (i == 1 || i == 6));
    }
  }
}
