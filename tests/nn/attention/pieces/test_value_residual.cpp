#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/nn/attention/multi_head_case.h>
#include <tapeformer/tests/reference/check_gradients.h>

using namespace tapeformer;

namespace {

void with_residual(AttentionConfig& c) { c.value_residual = true; }

}  // namespace

TEST_CASE("the first layer's values are mixed into the layer's own, by the factors") {
  check_formula(with_residual, {[](auto& p, const LayerInputs& in, Tensor&, Tensor&, Tensor& value) {
                  const Tensor& factors = p["value_residual"];
                  value = factors.at(0) * value + factors.at(1) * in.first;
                }});
}

TEST_CASE("gradients reach the first layer's values") {
  const AttentionConfig config = layer_config("gqa", with_residual);
  MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
  const LayerInputs in(config, 3);
  AttentionContext context = in.context();
  context.first_values = in.first;
  check_gradients(
      "multi_head first values",
      gradcheck_module(
          layer, {{"first", in.first}}, [&] { return layer(in.x, in.x, context); }, second_order(12)));
}

TEST_CASE("factors start at a half, first values must be given, and shared keys are refused") {
  const AttentionConfig config = layer_config("gqa", with_residual);
  auto layer = fresh_module<MultiHeadAttention>(config);
  CHECK(parameters_of(layer).at("value_residual").to_vector<float>() == std::vector<float>{0.5, 0.5});
  const Tensor x = random_values({2, 3, 6}, 3, DType::f32);
  CHECK_THROWS_WITH_AS(layer(x, x), "[multi_head] value_residual needs first_values in the context", Error);
  AttentionConfig shares = config;
  shares.shared_keys = true;
  CHECK(message_of<Error>([&] { shares.check(); }) ==
        "[attention] a layer with shared_keys has no values of its own; got attention=gqa, "
        "shared_keys=true, value_residual=true; try value_residual=false");
}
