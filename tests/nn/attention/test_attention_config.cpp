#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_SUITE("nn/attention/attention_config") {
  TEST_CASE("kinds are named, and an unknown one is told which there are") {
    for (const char* name : {"mha", "gqa", "mqa", "mla", "additive"}) {
      CHECK(std::string(name_of(attention_kind(name))) == name);
    }
    CHECK(message_of<Error>([] { attention_kind("linear"); }) ==
          "[attention] the kind must be one of mha, gqa, mqa, mla, additive; got linear");
  }

  TEST_CASE(
      "grouped, multi-query and latent attention come with the sizes that were asked for, or defaults") {
    Generator random(1);
    AttentionConfig config;
    config.width = 48, config.heads = 6;
    const auto widths = [&](const char* kind) {
      config.kind = attention_kind(kind);
      return make_attention(config, random)->cache_widths();
    };
    const auto check = [&](const char* kind, Index key, Index value) {
      const CacheWidths got = widths(kind);
      CAPTURE(kind);
      CHECK(got.key == key);
      CHECK(got.value == value);
    };
    check("gqa", 3 * 8, 3 * 8);
    check("mqa", 8, 8);
    check("mla", 24 + 4, 0);
    config.groups = 2, config.key_width = 10, config.value_width = 5;
    config.latent_width = 30, config.rotary_width = 6;
    check("gqa", 20, 10);
    check("mqa", 10, 5);
    check("mla", 36, 0);
    config.cross = true;
    check("mla", 30, 0);
    config = {};
    config.width = 35, config.heads = 5;
    check("gqa", 7, 7);  // 2 does not divide 5
  }

  TEST_CASE("each kind attends to itself with rotary positions, and to a memory of another width without") {
    for (const char* kind : {"gqa", "mqa", "mla"}) {
      CAPTURE(kind);
      Generator random(1);
      AttentionConfig config;
      config.kind = attention_kind(kind);
      config.width = 16, config.heads = 4, config.rotary = true;
      const Tensor x = random_normal({2, 5, 16}, random, DType::f32);
      const auto self = make_attention(config, random);
      AttentionContext context;
      context.positions = Tensor::from(std::vector<std::int32_t>{0, 7, 14, 21, 28}, {5});
      CHECK(relative_error((*self)(x, x, context), (*self)(x, x)) > 1e-3);  // positions matter
      config.cross = true, config.memory_width = 6;
      const auto cross = make_attention(config, random);
      const Tensor memory = random_normal({2, 7, 6}, random, DType::f32);
      CHECK(relative_error((*cross)(x, memory, context), (*cross)(x, memory)) == 0);
    }
  }
}
