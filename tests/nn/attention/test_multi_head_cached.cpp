#include <tapeformer/tests/nn/attention/multi_head_case.h>

#include <doctest/doctest.h>

#include <algorithm>

using namespace tapeformer;

TEST_SUITE("nn/attention/multi_head cached") {
  TEST_CASE("decoding with masks, token by token or in pieces, gives what the whole gives") {
    const Index length = 9;
    for (const DType type : {DType::f64, DType::f32}) {
      for (const bool packed : {false, true}) {
        MultiHeadAttention attention =
            random_module<MultiHeadAttention>(layer_config("mha", [&](auto& c) { c.packed = packed; }));
        attention.to(type);
        const Tensor x = random_values({2, length, 6}, 3, type);
        AttentionContext whole;
        whole.causal = true;
        whole.key_mask = Tensor::full({2, length}, 1, DType::boolean);
        for (const Index padded : {0, 1}) whole.key_mask.data<bool>()[padded] = false;  // left padding
        whole.mask = random_values({length, length}, 5, type);
        const Tensor expected = attention(x, x, whole);
        for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
          for (const Index piece : {1, 4}) {
            const auto cache = make_cache({kind, 0, 2}, attention.cache_widths());
            TensorList rows;
            for (Index from = 0; from < length; from += piece) {
              const Index tokens = std::min(piece, length - from);
              const Tensor some = slice(x, 1, from, tokens);
              AttentionContext context;
              context.causal = true;
              context.cache = cache.get();
              context.key_mask = Tensor::full({2, from + tokens}, 1, DType::boolean);
              for (Index t = 0; t < std::min<Index>(2, from + tokens); ++t) {
                context.key_mask.data<bool>()[t] = false;
              }
              context.mask = slice(slice(whole.mask, 0, from, tokens), 1, 0, from + tokens);
              rows.push_back(attention(some, some, context));
            }
            INFO(name_of(type), " packed ", packed, " ", name_of(kind), " in pieces of ", piece);
            CHECK_BELOW(relative_error(concat(rows, 1), expected), type == DType::f64 ? 1e-13 : 1e-5);
            CHECK(cache->length() == length);
          }
        }
      }
    }
  }

  TEST_CASE("decoding beyond 128 tokens, which have a kernel of their own, gives what the whole gives") {
    const Index length = default_device().is_cuda() ? 140 : 208;  // an emulated GPU takes a second for twenty
    for (const char* const kind : {"gqa", "mqa"}) {
      const AttentionConfig config = layer_config(kind);
      MultiHeadAttention attention = random_module<MultiHeadAttention>(config);
      LayerInputs in(config, length);
      for (const DType type : {DType::f64, DType::f32}) {
        attention.to(type);
        in.x = in.x.to(type);
        const Tensor whole = attention(in.x, in.x, in.context());
        for (const CacheKind cache : {CacheKind::contiguous, CacheKind::paged})
          CHECK_BELOW(relative_error(decoded(attention, in, cache), whole),
                      type == DType::f64 ? 1e-13 : 1e-5);
      }
    }
  }
}
