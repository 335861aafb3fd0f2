#include <tapeformer/nn/attention/differential.h>
#include <tapeformer/tests/nn/module_case.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

AttentionConfig differential_config() {
  AttentionConfig config;
  config.kind = "differential";
  config.width = 6, config.heads = 4, config.groups = 2, config.key_width = 8, config.value_width = 5;
  config.rotary = true;
  return config;
}

}  // namespace

TEST_CASE("outputs and gradients are PyTorch's") {
  for (const char* const name : {"plain", "grouped_rotary", "cross"}) {
    const auto options = Golden("differential").options(name);
    AttentionConfig config;
    config.kind = "differential";
    config.width = 12, config.heads = options.at("heads"), config.groups = options.at("groups");
    config.key_width = options.at("key_width"), config.value_width = options.at("value_width");
    config.memory_width = options.at("memory_width"), config.lambda_initial = options.at("initial");
    config.rotary = options.at("rotary");
    config.rotations.base = options.at("rotary_base"), config.cross = options.at("cross");
    config.rotations.layout = RotaryLayout::half_split;
    auto layer = fresh_module<DifferentialAttention>(config);
    check_attention_against_golden(name, layer, !config.cross, "differential");
  }
}

TEST_CASE("its weights are differences, which sum to 1 - lambda") {
  DifferentialAttention layer = random_module<DifferentialAttention>(differential_config());
  const Tensor x = random_values({2, 5, 6}, 3);
  Tensor weights;
  AttentionContext context = causal_context();
  context.weights = &weights;
  const Tensor y = layer(x, x, context);
  context.weights = nullptr;
  CHECK_BELOW(relative_error(layer(x, x, context), y), 1e-11);
  REQUIRE(weights.shape() == Shape{2, 4, 5, 5});
  // The first token sees only itself: 1 - lambda.
  for (Index row = 0; row < 2 * 4 * 5; ++row) {
    double total = 0;
    for (Index s = 0; s < 5; ++s) total += weights.at(5 * row + s);
    CHECK_BELOW(deviation(total, weights.at(0)), 1e-12);
  }
}

TEST_CASE("a mask of each head is of both of its queries") {
  const Tensor x = random_values({2, 5, 6}, 3);
  const DifferentialAttention layer = random_module<DifferentialAttention>(differential_config());
  AttentionContext masked;
  const Tensor expected = layer(x, x, causal_context());
  for (const Shape& shape : {Shape{5, 5}, Shape{4, 5, 5}, Shape{2, 4, 5, 5}, Shape{2, 1, 5, 5}}) {
    CAPTURE(shape.text());
    const Tensor allowed = Tensor::empty(shape, DType::boolean);
    for (Index i = 0; i < allowed.elements(); ++i) allowed.data<bool>()[i] = i % 5 <= i / 5 % 5;
    masked.mask = allowed;
    CHECK_BELOW(relative_error(layer(x, x, masked), expected), 1e-13);
  }
  // Another mask for one head changes the output of that head.
  masked.mask = Tensor::full({4, 5, 5}, 0, DType::f64);
  const Tensor before = layer(x, x, masked);
  masked.mask.data<double>()[5 * 5 * 3] = 2;
  CHECK(relative_error(layer(x, x, masked), before) > 1e-6);
}

TEST_CASE("heads that cannot be halved, and rotary positions across inputs, are refused") {
  AttentionConfig config = differential_config();
  config.key_width = 5, config.rotary = false;
  CHECK(message_of<Error>([&] { config.check(); }) ==
        "[attention] differential attention halves its heads; got attention=differential, a width of 5; try "
        "an even width of the heads");
  const DifferentialAttention layer = random_module<DifferentialAttention>(differential_config());
  const Tensor x = random_values({2, 3, 6}, 3), memory = random_values({2, 4, 6}, 4);
  CHECK(message_of<Error>([&] { layer(x, memory); }) ==
        "[differential] rotary positions are for self-attention; got a memory that is not the query; try "
        "cross=true");
}
