#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/basic/single_head.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/native_sparse.h>

using namespace tapeformer;

namespace {

constexpr CacheKind kCaches[] = {CacheKind::contiguous, CacheKind::paged};

AttentionConfig config_of(const AttentionKind& kind, bool cross = false) {
  AttentionConfig config;
  config.kind = kind.name, config.width = 16, config.heads = 4;
  config.cross = cross, config.rotary = cross || (kind.can & kCanRotate);  // which cross-attention ignores
  return with_small_blocks(config);
}

/// Calls check(layer, name) with self-attention of all kinds that cache keys and take masks, or of all that
/// cache anything, and with a single head.
template <class Check>
void for_all_kinds(const Check& check, bool with_causal = false) {
  Generator random(test_seed(1));
  for (const AttentionKind& kind : attention_kinds()) {
    CAPTURE(kind.name);
    if (!(kind.can & kCanCache) || ((kind.can & kOnlyCausal) && !with_causal)) continue;
    const auto layer = make_attention(config_of(kind), random);
    layer->to(DType::f64);
    check(*layer, kind.name.c_str());
  }
  CAPTURE("single");
  SingleHeadConfig config;
  config.width = 16;
  SingleHeadAttention single(config, random);
  single.to(DType::f64);
  check(single, "single");
}

/// Calls check(layer, kind) with layers of all kinds, in each of their forms, with random parameters.
template <class Check>
void for_all_forms(bool cross, Index memory_width, const Check& check) {
  Generator random(test_seed(1));
  for (const AttentionKind& kind : attention_kinds()) {
    if (cross && (kind.can & kOnlyCausal)) continue;
    std::vector<AttentionForm> forms = kind.forms;
    forms.push_back({"default", [](AttentionConfig&) {}});
    for (const AttentionForm& form : forms) {
      CAPTURE(kind.name);
      CAPTURE(form.name);
      AttentionConfig config = config_of(kind, cross);
      config.memory_width = memory_width;
      form.choose(config);
      const auto layer = make_attention(config, random);
      layer->to(DType::f64);
      randomise(*layer, 2);
      check(*layer, kind);
    }
  }
}

}  // namespace

TEST_CASE("no rows or no queries give no output, with a cache and without") {
  for_all_kinds(
      [](const Attention& layer, const char*) {
        for (const Shape& shape : {Shape{0, 3, 16}, Shape{2, 0, 16}, Shape{0, 0, 16}}) {
          CAPTURE(shape.text());
          const Tensor x = Tensor::zeros(shape, DType::f64);
          AttentionContext context = causal_context();
          const Shape expected = layer(x, x, context).shape();
          CHECK(expected == Shape{shape[0], shape[1], expected[2]});
          for (const CacheKind kind : kCaches) {
            const auto cache = make_cache({kind, 0, 2}, layer.cache_widths());
            context.cache = cache.get();
            for (int call = 0; call < 2; ++call) CHECK(layer(x, x, context).shape() == expected);
          }
        }
      },
      true);
}

TEST_CASE("tokens continued from a cache get what they get all at once, over many tokens") {
  const SingleThread guard;
  const Index length = cached_tokens() + 8;
  for_all_forms(false, 0, [&](Attention& layer, const AttentionKind& kind) {
    if (!(kind.can & kCanCache)) return;
    for (const DType type : {DType::f64, DType::f32}) {
      if (type == DType::f32 && (kind.can & kHasState)) continue;  // roundings grow with the delta rule
      layer.to(type);
      const Tensor x = random_values({2, length, 16}, 3, type), whole = layer(x, x, causal_context());
      for (const CacheKind cache_kind : kCaches) {
        const auto cache = make_cache({cache_kind, 0, 7}, layer.cache_widths());
        const AttentionContext context = causal_context(cache.get());
        TensorList rows;
        for (Index from = 0; from < length;) {
          const Tensor piece = slice(x, 1, from, from == 0 ? 5 : from == 5 ? 3 : 1);
          rows.push_back(layer(piece, piece, context));
          from += piece.size(1);
        }
        CHECK_BELOW(relative_error(concat(rows, 1), whole), type == DType::f64 ? 1e-11 : 1e-4);
        CHECK(cache->length() == length);
      }
    }
  });
}

TEST_CASE("cross-attention of any kind keeps the memory in its cache and never reads it again") {
  const Tensor x = random_values({2, 6, 16}, 3), memory = random_values({2, 5, 12}, 4);
  for_all_forms(true, 12, [&](const Attention& layer, const AttentionKind& kind) {
    if (!(kind.can & kCanCache)) return;
    AttentionContext context;
    context.key_mask = real_tokens({3, 5}, 5);
    const Tensor whole = layer(x, memory, context);
    for (const CacheKind cache_kind : kCaches) {
      const auto cache = make_cache({cache_kind, 0, 3}, layer.cache_widths());
      context.cache = cache.get();
      CHECK_BELOW(relative_error(layer(slice(x, 1, 0, 2), memory, context), slice(whole, 1, 0, 2)), 1e-11);
      CHECK_BELOW(relative_error(layer(slice(x, 1, 2, 4), {}, context), slice(whole, 1, 2, 4)), 1e-11);
      CHECK(cache->length() == 5);
    }
  });
}

TEST_CASE("both caches refuse a mask over another number of keys than they hold") {
  const Tensor x = random_values({2, 4, 16}, 3);
  const std::string rule =
      "[attention] a mask must have a column for every key in the cache, this call's included; got ";
  for_all_kinds([&](const Attention& layer, const char*) {
    for (const CacheKind kind : kCaches) {
      const auto refusal_of = [&](Tensor AttentionContext::*mask, const Tensor& value) {
        const auto cache = make_cache({kind, 0, 2}, layer.cache_widths());
        AttentionContext context;
        context.cache = cache.get(), context.*mask = value;
        const std::string message = message_of<ShapeError>([&] { layer(x, x, context); });
        CHECK(cache->length() == (message == "nothing was thrown" ? 4 : 0));
        return message;
      };
      CHECK(refusal_of(&AttentionContext::key_mask, Tensor::full({2, 3}, 1, DType::boolean)) ==
            rule + "key_mask=bool[2,3] for 4 keys; try one that grows with the cache");
      CHECK(refusal_of(&AttentionContext::mask, Tensor::zeros({4, 20}, DType::f64)) ==
            rule + "mask=f64[4,20] for 4 keys; try one that grows with the cache");
      CHECK(refusal_of(&AttentionContext::key_lengths, ids_of({4, 5}, {2})) ==
            "[attention] key_lengths must be at most the number of keys in the cache; got 5 of 4 keys");
      CHECK(refusal_of(&AttentionContext::mask, Tensor::zeros({4, 1}, DType::f64)) == "nothing was thrown");
    }
  });
}

TEST_CASE("weights are of the keys that a cache holds, the same from both caches") {
  const Tensor x = random_values({2, 7, 16}, 3);
  for_all_kinds([&](const Attention& layer, const char*) {
    AttentionContext whole = causal_context();
    Tensor expected;
    whole.weights = &expected;
    const Tensor y = layer(x, x, whole);
    for (const CacheKind kind : kCaches) {
      const auto cache = make_cache({kind, 0, 2}, layer.cache_widths());
      for (Index t = 0; t < 7; ++t) {
        Tensor weights;
        AttentionContext context = causal_context(cache.get());
        context.weights = &weights;
        context.key_mask = Tensor::full({2, t + 1}, 1, DType::boolean);
        const Tensor piece = slice(x, 1, t, 1);
        CHECK_BELOW(relative_error(layer(piece, piece, context), slice(y, 1, t, 1)), 1e-11);
        REQUIRE(weights.shape() == Shape{2, expected.size(1), 1, t + 1});
        CHECK_BELOW(relative_error(weights, slice(slice(expected, 2, t, 1), 3, 0, t + 1)), 1e-11);
      }
    }
  });
}

TEST_CASE("inputs that are not [B, T, C], and a memory that is missing, are refused by name") {
  const Tensor x = random_values({2, 4, 16}, 3), flat = random_values({4, 16}, 4);
  for_all_kinds(
      [&](const Attention& layer, const char*) {
        const std::string message = message_of<ShapeError>([&] { layer(flat, flat); });
        CHECK(message.find('[') == 0);
        CHECK(message.find("] inputs must be [B, T, C]; got query=f64[4,16]; try ") == message.find(']'));
      },
      true);
  Generator random(test_seed(1));
  for (const AttentionKind& kind : attention_kinds()) {
    CAPTURE(kind.name);
    if (kind.can & kOnlyCausal) continue;
    const auto cross = make_attention(config_of(kind, true), random);
    cross->to(DType::f64);
    std::string message = message_of<ShapeError>([&] { (*cross)(x, flat); });
    CHECK(message.find(" inputs must be [B, T, C]; got query=f64[2,4,16], memory=f64[4,16]; try ") !=
          std::string::npos);
    message = message_of<ShapeError>([&] { (*cross)(x, {}); });
    CHECK(message.find(" a memory may be left out only once the cache holds it; got query=f64[2,4,16]") !=
          std::string::npos);
  }
}
