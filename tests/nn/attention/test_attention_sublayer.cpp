#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/attention_sublayer.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

struct SublayerCase {
  Index memory_width = 0;
  double dropout = 0;
};

AttentionSublayer sublayer_of(const SublayerCase& given) {
  Generator random(test_seed(1));
  AttentionConfig config;
  config.width = 6;
  config.heads = 3;
  config.memory_width = given.memory_width;
  config.cross = given.memory_width > 0;
  AttentionSublayer sublayer(make_attention(config, random), {6, given.dropout, 1e-5}, random);
  sublayer.to(DType::f64);
  randomise(sublayer, 2);
  return sublayer;
}

}  // namespace

TEST_SUITE("nn/attention/attention_sublayer") {
  TEST_CASE("it is norm(x + attention(x)), for self- and for cross-attention, under the context's masks") {
    const Tensor x = random_values({2, 5, 6}, 3), other = random_values({2, 4, 7}, 4);
    for (const bool is_self : {true, false}) {
      AttentionSublayer sublayer = sublayer_of({is_self ? 0 : 7, 0});
      Generator random(test_seed(1));
      AttentionConfig config;
      config.width = 6;
      config.heads = 3;
      config.memory_width = is_self ? 0 : 7;
      config.cross = !is_self;
      const auto attention = make_attention(config, random);
      std::map<std::string, Tensor> p;
      for (const auto& [name, parameter] : sublayer.named_parameters()) p[name] = parameter.value();
      for (auto& [name, parameter] : attention->named_parameters())
        parameter.set_value(p["attention." + name]);
      const Tensor memory = is_self ? x : other;
      AttentionContext context;
      context.causal = true;
      const Tensor expected =
          layer_norm(x + (*attention)(x, memory, context), p["norm.weight"], p["norm.bias"], 1e-5);
      CHECK(same_bits(sublayer(x, memory, context), expected));
    }
  }

  TEST_CASE("dropout acts on what the attention adds, in training only") {
    AttentionSublayer dropping = sublayer_of({0, 0.5}), whole = sublayer_of({0, 0});
    const Tensor x = random_values({2, 5, 6}, 3);
    CHECK(relative_error(dropping(x, x), whole(x, x)) > 0.01);
    dropping.eval();
    CHECK(same_bits(dropping(x, x), whole(x, x)));
  }
}
