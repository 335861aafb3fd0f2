#include <tapeformer/tests/nn/generation/decoding_case.h>
#include <tapeformer/tests/reference/sanitized.h>

using namespace tapeformer;

namespace {

/// Checks the logits of each kind of cache against none, over `count` steps of random tokens; rows are
/// reordered, repeated and dropped on the way.
void check_steps(const EncoderDecoder& model, int count, double bound) {
  const auto [memory, mask] = encoded_sources(model);
  TranslationSteps plain(model, memory, mask, std::nullopt),
      contiguous(model, memory, mask, CacheConfig{CacheKind::contiguous, 0, 5}),
      paged(model, memory, mask, CacheConfig{CacheKind::paged, 0, 5});
  Generator random(test_seed(4));
  Index rows = 5;
  for (int step = 0; step < count; ++step) {
    TokenIds tokens(static_cast<std::size_t>(rows), kBeginId);
    for (std::int32_t& token : tokens)
      if (step > 0) token = static_cast<std::int32_t>(random.below(11));
    const Tensor expected = plain.step(tokens);
    CHECK_BELOW(relative_error(contiguous.step(tokens), expected), bound);
    CHECK_BELOW(relative_error(paged.step(tokens), expected), bound);
    if (random.below(3) > 0) continue;
    std::vector<std::int32_t> order(static_cast<std::size_t>(2 + random.below(4)));
    for (std::int32_t& row : order) row = static_cast<std::int32_t>(random.below(rows));
    for (TranslationSteps* steps : {&plain, &contiguous, &paged}) steps->reorder(order);
    rows = static_cast<Index>(order.size());
  }
}

}  // namespace

TEST_CASE("logits are the same with and without a cache, through reorders, within the context and past it") {
  const SingleThread guard;
  for (std::size_t k = 0; k < decoder_kinds().size(); ++k) {
    if (!is_tried(k)) continue;
    const DecoderKind& kind = decoder_kinds()[k];
    for (const Index max_length : {65, 33}) {
      if (kind.positions == PositionKind::rotary && max_length == 65) continue;  // has no context to end
      for (const DType type : {DType::f64, DType::f32}) {
        const EncoderDecoder model = decoding_model(kind, max_length, type, 0);
        INFO(kind.name(), ", ", name_of(type), ", context ", max_length);
        // Random layers blow roundings up a hundredfold for some draws; a wrong cache is off by tenths.
        check_steps(model, fewer_if_sanitized(max_length == 33 ? 80 : 65), type == DType::f64 ? 1e-12 : 1e-4);
      }
    }
  }
}

TEST_CASE_FIXTURE(SingleThread, "past the context the newest tokens count, from the first position on") {
  const EncoderDecoder model = decoding_model(decoder_kinds()[0], 8, DType::f64, 0);
  const auto [memory, mask] = encoded_sources(model);
  TranslationSteps steps(model, memory, mask);
  std::vector<TokenIds> rows(5);
  for (std::int32_t t = 0; t < 30; ++t) {
    TokenIds tokens;
    for (std::int32_t row = 0; row < 5; ++row) {
      tokens.push_back((row + t * t) % 11);
      rows[static_cast<std::size_t>(row)].push_back(tokens.back());
    }
    const Tensor logits = steps.step(tokens);
    const Index seen = t < 8 ? t + 1 : 5 + t % 4;  // 8 tokens full: 4 go, and the next one comes
    std::vector<std::int32_t> ids;
    for (const TokenIds& row : rows) ids.insert(ids.end(), row.end() - seen, row.end());
    const Tensor expected = model.logits(model.decode(ids_of(ids, {5, seen}), memory, mask));
    REQUIRE(logits.shape() == Shape{5, 11});
    INFO("token ", t);
    for (Index i = 0; i < logits.elements(); ++i)
      CHECK_BELOW(std::fabs(logits.at(i) - expected.at((i / 11 * seen + seen - 1) * 11 + i % 11)), 1e-12);
  }
}
