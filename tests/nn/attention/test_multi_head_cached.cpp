#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

#include <algorithm>

using namespace tapeformer;

namespace {

/// Head widths of their own: d_k 4, d_v 5.
AttentionConfig config_of() {
  AttentionConfig config;
  config.width = 6;
  config.heads = 3;
  config.key_width = 4;
  config.value_width = 5;
  config.packed = false;
  return config;
}

}  // namespace

TEST_SUITE("nn/attention/multi_head cached") {
  TEST_CASE("decoding through a cache, token by token or in pieces, gives what the whole gives") {
    AttentionConfig config = config_of();
    const Index length = 9;
    for (const DType type : {DType::f64, DType::f32}) {
      for (const int variant : {0, 1, 2, 3}) {
        config.packed = variant % 2 == 1;
        config.rotary = variant >= 2;
        MultiHeadAttention attention = random_module<MultiHeadAttention>(config);
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
              const Tensor fresh = slice(x, 1, from, tokens);
              AttentionContext context;
              context.causal = true;
              context.cache = cache.get();
              context.key_mask = Tensor::full({2, from + tokens}, 1, DType::boolean);
              for (Index t = 0; t < std::min<Index>(2, from + tokens); ++t) {
                context.key_mask.data<bool>()[t] = false;
              }
              context.mask = slice(slice(whole.mask, 0, from, tokens), 1, 0, from + tokens);
              rows.push_back(attention(fresh, fresh, context));
            }
            INFO(name_of(type), " variant ", variant, " ", name_of(kind), " in pieces of ", piece);
            CHECK_BELOW(relative_error(concat(rows, 1), expected), type == DType::f64 ? 1e-13 : 1e-5);
            CHECK(cache->length() == length);
          }
        }
      }
    }
  }

  TEST_CASE("cross-attention fills its cache once and never looks at the memory again") {
    AttentionConfig config = config_of();
    config.memory_width = 7;
    MultiHeadAttention attention = random_module<MultiHeadAttention>(config);
    const Tensor x = random_values({2, 5, 6}, 3), memory = random_values({2, 4, 7}, 4);
    AttentionContext context;
    context.key_mask = real_tokens({4, 2}, 4);
    const Tensor expected = attention(x, memory, context);
    for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
      const auto cache = make_cache({kind, 0, 3}, attention.cache_widths());
      context.cache = cache.get();
      TensorList rows;
      for (Index t = 0; t < 5; ++t) {
        rows.push_back(attention(slice(x, 1, t, 1), t == 0 ? memory : Tensor(), context));
      }
      CHECK_BELOW(relative_error(concat(rows, 1), expected), 1e-14);
      CHECK(cache->length() == 4);
    }
  }
}
