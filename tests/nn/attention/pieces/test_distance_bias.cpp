#include <tapeformer/autograd/ops/attention/relative_bias.h>
#include <tapeformer/tests/nn/attention/multi_head_case.h>

using namespace tapeformer;

namespace {

void buckets(AttentionConfig& c) {
  c.relative_bias = RelativeBias::buckets, c.bias_buckets = 8, c.bias_distance = 20;
}

}  // namespace

TEST_CASE("scores get the paper's slopes, or a learned table's rows") {
  check_formula([](auto& c) { c.relative_bias = RelativeBias::alibi; },
                {{}, [](auto&, AttentionOptions& options) {
                   options.relative_bias = alibi_bias(alibi_slopes(4).to(DType::f64), 40);
                 }});
  check_formula(buckets, {{}, [](auto& p, AttentionOptions& options) {
                            options.relative_bias = bucketed_bias(p["relative_bias.weight"],
                                                                  distance_buckets({8, false, 20}), 40);
                          }});
}

TEST_CASE("without a causal mask, buckets tell both directions apart") {
  const AttentionConfig config = layer_config("gqa", buckets);
  MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
  const LayerInputs in(config, 5);
  const Tensor expected = by_formula(
      layer, config, in,
      {{}, [](auto& p, AttentionOptions& options) {
         options.causal = false;
         options.relative_bias = bucketed_bias(p["relative_bias.weight"], distance_buckets({8, true, 20}), 4);
       }});
  CHECK_BELOW(relative_error(layer(in.x, in.x), expected), 1e-13);
}

TEST_CASE("cross-attention has no distances, and its relative bias is left out") {
  const AttentionConfig config = layer_config("gqa", [](auto& c) { buckets(c), c.cross = true; });
  CHECK(config.resolved().relative_bias == RelativeBias::none);
}

TEST_CASE("a configuration is refused whose buckets fit in one of the two directions alone") {
  const auto few = [](auto& c) { buckets(c), c.bias_buckets = 4, c.bias_distance = 2; };
  CHECK_THROWS_AS(layer_config("gqa", few).check(), ShapeError);
}
