#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/cached_heads.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

const PackedHeads kHeads{2, 1, 3, 2};  // H, G, D, E

KeyValueHeads fresh(Index tokens, std::uint64_t seed) {
  return {random_values({2, tokens, 1, 3}, seed), random_values({2, tokens, 1, 2}, seed + 1)};
}

}  // namespace

TEST_SUITE("nn/attention/cached_heads") {
  TEST_CASE("without a cache keys and values pass through, and masks stay as they are") {
    AttentionOptions masks;
    const KeyValueHeads own = fresh(3, 1);
    const KeyValueHeads got = cached_heads(nullptr, true, kHeads, masks, [&] { return own; });
    CHECK(got.key_bsgd.state() == own.key_bsgd.state());
    CHECK(got.value_bsge.state() == own.value_bsge.state());
    CHECK_FALSE(masks.key_lengths.defined());
  }

  TEST_CASE("self-attention sees all tokens so far, and masks grow to the cache's room") {
    const auto cache = make_cache({CacheKind::contiguous, 8, 1}, {3, 2});
    TensorList keys, values;
    for (Index step = 0; step < 2; ++step) {
      AttentionOptions masks;
      masks.key_mask = Tensor::full({2, 3 * (step + 1)}, 1, DType::boolean);
      masks.mask = random_values({3, 3 * (step + 1)}, 7);
      const Tensor mask = masks.mask;
      const KeyValueHeads own = fresh(3, static_cast<std::uint64_t>(10 * step + 1));
      keys.push_back(own.key_bsgd);
      values.push_back(own.value_bsge);
      const KeyValueHeads got = cached_heads(cache.get(), true, kHeads, masks, [&] { return own; });
      const Index held = 3 * (step + 1);
      CHECK(cache->length() == held);
      CHECK(got.key_bsgd.shape() == Shape{2, 8, 1, 3});
      CHECK(got.value_bsge.shape() == Shape{2, 8, 1, 2});
      CHECK(same_bits(slice(got.key_bsgd, 1, 0, held), concat(keys, 1)));
      CHECK(same_bits(slice(got.value_bsge, 1, 0, held), concat(values, 1)));
      CHECK(masks.key_lengths.to_vector<std::int32_t>() ==
            std::vector<std::int32_t>(2, static_cast<std::int32_t>(held)));
      CHECK(same_bits(masks.key_mask, real_tokens({held, held}, 8)));
      CHECK(same_bits(slice(masks.mask, 1, 0, held), mask));
      CHECK(masks.mask.shape() == Shape{3, 8});
    }
  }

  TEST_CASE("a mask for every key alike stays as it is") {
    const auto cache = make_cache({CacheKind::contiguous, 8, 1}, {3, 2});
    AttentionOptions masks;
    masks.mask = values({1, 2, 3}, {3, 1});
    const Tensor mask = masks.mask;
    cached_heads(cache.get(), true, kHeads, masks, [&] { return fresh(3, 1); });
    CHECK(masks.mask.state() == mask.state());
  }

  TEST_CASE("where a tape records, the spare room stays behind, so that masks get their gradients") {
    const auto cache = make_cache({CacheKind::contiguous, 8, 1}, {3, 2});
    append_heads(*cache, fresh(3, 1));
    Tape tape;
    AttentionOptions options;
    options.mask = random_values({2, 3}, 7);
    const Tensor mask = options.mask;
    const KeyValueHeads got = held_heads(*cache, kHeads, options);
    CHECK(same_bits(got.key_bsgd, fresh(3, 1).key_bsgd));
    CHECK(same_bits(got.value_bsge, fresh(3, 1).value_bsge));
    CHECK(options.mask.state() == mask.state());
    CHECK_FALSE(options.key_lengths.defined());
  }

  TEST_CASE("cross-attention asks for the memory's keys and values once") {
    const auto cache = make_cache({CacheKind::contiguous, 3, 1}, {3, 2});
    int asked = 0;
    for (int call = 0; call < 3; ++call) {
      AttentionOptions masks;
      const KeyValueHeads own = fresh(3, 1);
      const KeyValueHeads got = cached_heads(cache.get(), false, kHeads, masks, [&] {
        ++asked;
        return own;
      });
      CHECK(same_bits(got.key_bsgd, own.key_bsgd));
      CHECK_FALSE(masks.key_lengths.defined());  // the cache is full to the last token
    }
    CHECK(asked == 1);
  }

  TEST_CASE("angles are of positions that count on from what the cache holds, unless they are given") {
    const auto cache = make_cache({}, {3, 2});
    AttentionContext context;
    const auto angles = [&](Index length) {
      return query_angles(context, random_values({2, length, 4}, 1), {}, 4).table;
    };
    const auto expected = [&](const std::vector<std::int32_t>& at) {
      return rotary_angles({}, 4, ids_of(at, {static_cast<Index>(at.size())}), angles(1).dtype()).table;
    };
    CHECK(absolute_error(angles(3), expected({0, 1, 2})) == 0);
    context.cache = cache.get();
    append_heads(*cache, fresh(4, 1));
    CHECK(absolute_error(angles(2), expected({4, 5})) == 0);
    context.positions = ids_of({9, 3}, {2});
    CHECK(absolute_error(angles(2), expected({9, 3})) == 0);
    context.angles = {expected({1, 7}), RotaryLayout::half_split};
    CHECK(angles(2).state() == context.angles.table.state());
  }

  TEST_CASE("options take over masks, weights and the layer's dropout") {
    Generator random(1);
    Dropout dropout({0.25}, random);
    AttentionContext context;
    Tensor weights;
    context.causal = true;
    context.weights = &weights;
    const AttentionOptions options = attention_options(context, dropout);
    CHECK(options.causal);
    CHECK(options.weights == &weights);
    CHECK(options.dropout == 0.25);
    dropout.eval();
    CHECK(attention_options(context, dropout).dropout == 0);
  }
}
