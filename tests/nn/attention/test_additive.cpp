#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/tests/nn/module_case.h>

#include <algorithm>

using namespace tapeformer;

namespace {

AttentionConfig additive_config(Index width, Index memory_width, double dropout = 0) {
  AttentionConfig config("additive", 3);
  config.width = width, config.memory_width = memory_width;
  config.key_width = 5, config.value_width = 7, config.dropout = dropout;
  return config;
}

}  // namespace

TEST_CASE("outputs and gradients are those of PyTorch") {
  Generator random(test_seed(1));
  AdditiveAttention self(additive_config(12, 0), random), cross(additive_config(12, 10), random);
  check_attention_against_golden("layer_self", self, false, "additive");
  check_attention_against_golden("layer_causal", self, true, "additive");
  check_attention_against_golden("layer_cross", cross, false, "additive");
}

TEST_CASE("weights are handed out; evaluation drops nothing") {
  auto layer = random_module<AdditiveAttention>(additive_config(6, 4, 0.5));
  const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 8, 4}, 4);
  CHECK(relative_error(layer(query, memory), layer(query, memory)) > 0.01);
  layer.eval();
  Tensor weights;
  AttentionContext context;
  context.weights = &weights;
  CHECK_BELOW(relative_error(layer(query, memory, context), layer(query, memory)), 1e-13);
  REQUIRE(weights.shape() == Shape{2, 3, 5, 8});
  for (Index row = 0; row < 30; ++row) {
    double total = 0;
    for (Index s = 0; s < 8; ++s) total += weights.at(row * 8 + s);
    CHECK_BELOW(deviation(total, 1), 1e-14);
  }
}

TEST_CASE("parameters start Xavier uniform, biases zero") {
  AttentionConfig config("additive", 4);
  config.width = 64;
  auto layer = fresh_module<AdditiveAttention>(config);
  for (const auto& [path, parameter] : layer.named_parameters()) {
    const std::string& name = path;
    CAPTURE(name);
    const Tensor x = parameter;
    double largest = 0;
    for (Index i = 0; i < x.elements(); ++i) largest = std::max(largest, std::fabs(x.at(i)));
    const double bound = x.rank() == 1 ? 0 : name == "score" ? std::sqrt(6.0 / 17) : std::sqrt(6.0 / 128);
    CHECK(largest <= bound);
    CHECK(largest >= 0.6 * bound);  // of 64 draws, by 0.6^64
  }
  CHECK(layer.parameter_count() == 4 * 64 * 64 + 3 * 64 + 64);
}
