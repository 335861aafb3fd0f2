#include <tapeformer/tests/nn/attention/latent_case.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_SUITE("nn/attention/latent_cached") {
  TEST_CASE("decoding with the latent cache gives what decoding without gives, in both forms") {
    const Index T = 204;
    for (const DType type : {DType::f64, DType::f32}) {
      const Tensor x = random_values({2, T, 8}, 3, type);
      for (const LatentVariant& variant : kLatentVariants) {
        CAPTURE(variant.name);
        for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
          for (const LatentForm form : {LatentForm::automatic, LatentForm::naive, LatentForm::absorbed}) {
            LatentAttention attention = latent_attention_of(config_of(variant, form));
            attention.to(type);
            CacheConfig config;
            config.kind = kind, config.block_size = 8;
            const auto cache = make_cache(config, attention.cache_widths());
            CHECK_BELOW(relative_error(decoded(attention, x, *cache), attention(x, x, causal())),
                        type == DType::f64 ? 1e-11 : 1e-5);
            CHECK(cache->length() == T);
          }
        }
      }
    }
  }

  TEST_CASE("gradients of queries that meet a memory in the cache are the same in both forms") {
    const Tensor x = random_values({2, 4, 8}, 3), memory = random_values({2, 7, 8}, 4);
    std::vector<Everything> results;
    for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
      LatentAttention attention = latent_attention_of(config_of(kLatentVariants[4], form));
      const auto cache = make_cache({}, attention.cache_widths());
      AttentionContext context;
      context.cache = cache.get();
      attention(x, memory, context);
      results.push_back(everything(attention, x, memory, context));
    }
    check_same(results[1], results[0]);
    for (const auto& [path, gradient] : results[0].gradients) {
      const std::string& name = path;
      INFO(name);
      const bool is_cached =
          name == "memory" || name.find("key_value") == 0;  // what is held gets no gradient
      CHECK((absolute_error(gradient, Tensor::zeros(gradient.shape(), DType::f64)) > 1e-3) == !is_cached);
    }
  }

  TEST_CASE("the cache holds d_c + d_R numbers a token, as the formula says") {
    for (const DType type : {DType::f64, DType::f32}) {
      for (const LatentVariant& variant : kLatentVariants) {
        LatentAttention attention = latent_attention_of(config_of(variant));
        attention.to(type);
        const auto cache = make_cache({}, attention.cache_widths());
        const Tensor x = random_values({2, 5, 8}, 3, type);
        AttentionContext context = causal();
        context.cache = cache.get();
        attention(x, x, context);
        CHECK(attention.cache_widths().key == 6 + variant.rotary_width);
        CHECK(attention.cache_widths().value == 0);
        CHECK(cache->bytes() == 2 * 5 * (6 + variant.rotary_width) * bytes_of(type));
      }
    }
  }

  TEST_CASE("cross-attention keeps the memory's latents in its cache and never looks at the memory again") {
    AttentionConfig config = config_of(kLatentVariants[4]);
    config.memory_width = 7;
    const LatentAttention attention = latent_attention_of(config);
    const Tensor x = random_values({2, 6, 8}, 3), memory = random_values({2, 5, 7}, 4);
    AttentionContext context;
    context.key_mask = real_tokens({3, 5}, 5);
    const Tensor whole = attention(x, memory, context);
    const auto cache = make_cache({}, attention.cache_widths());
    context.cache = cache.get();
    CHECK_BELOW(relative_error(attention(slice(x, 1, 0, 2), memory, context), slice(whole, 1, 0, 2)), 1e-11);
    CHECK_BELOW(relative_error(attention(slice(x, 1, 2, 4), {}, context), slice(whole, 1, 2, 4)), 1e-11);
  }
}
