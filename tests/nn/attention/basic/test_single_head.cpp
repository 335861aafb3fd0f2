#include <tapeformer/nn/attention/basic/self_attention.h>
#include <tapeformer/nn/attention/basic/single_head.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/nn/walkthrough.h>

using namespace tapeformer;

namespace {

SingleHeadConfig widths(Index width, Index key_width, Index value_width = 0) {
  SingleHeadConfig config;
  config.width = width;
  config.key_width = key_width;
  config.value_width = value_width;
  return config;
}

}  // namespace

TEST_CASE("with linear layers it gives the figures that PyTorch printed, and its weights") {
  Generator random(test_seed(1));
  TorchGenerator torch(789);
  SingleHeadAttention attention(widths(3, 2), random);
  for (auto& [name, parameter] : attention.named_parameters()) parameter.set_value(torch.linear_weight(2, 3));
  const Tensor x = walkthrough_tokens().to(DType::f32).alias({1, 6, 3});
  Tensor weights;
  AttentionContext context;
  context.weights = &weights;
  CHECK(prints_as(attention(x, x, context), {-0.0739, 0.0713, -0.0748, 0.0703, -0.0749, 0.0702, -0.0760,
                                             0.0685, -0.0763, 0.0679, -0.0754, 0.0693}));
  CHECK(weights.shape() == Shape{1, 1, 6, 6});
  CHECK(prints_as(slice(weights, 2, 5, 1), {0.1935, 0.1663, 0.1666, 0.1542, 0.1666, 0.1529}));
  context.causal = true;
  attention(x, x, context);
  CHECK(prints_as(slice(weights, 2, 1, 1), {0.5517, 0.4483, 0, 0, 0, 0}));
  CHECK(prints_as(slice(weights, 2, 2, 1), {0.3800, 0.3097, 0.3103, 0, 0, 0}));
  CHECK(prints_as(slice(weights, 2, 3, 1), {0.2758, 0.2460, 0.2462, 0.2319, 0, 0}));
}

TEST_CASE("it is attention on bare matrices, its weights transposed, with the given scale") {
  for (const double scale : {0.0, 0.3}) {
    SingleHeadConfig config = widths(5, 3, 4);
    config.scale = scale;
    auto layer = random_module<SingleHeadAttention>(config);
    auto matrices = random_module<MatrixSelfAttention>(MatrixSelfAttentionConfig{5, 3, 4, scale});
    const auto weights = layer.parameters();
    for (std::size_t i = 0; i < 3; ++i) matrices.parameters()[i].set_value(transpose(weights[i]));
    const Tensor x = random_values({2, 6, 5}, 3);
    CHECK_BELOW(relative_error(layer(x, x), matrices(x)), 1e-14);
  }
}

TEST_CASE("dropout zeroes weights and scales the rest; evaluation does not drop") {
  SingleHeadConfig config = widths(5, 3);
  config.dropout = 0.5, config.causal = true;
  auto attention = random_module<SingleHeadAttention>(config);
  const Tensor x = random_values({1, 30, 5}, 3);
  Tensor weights;
  AttentionContext context;
  context.weights = &weights;
  const Tensor dropped = attention(x, x, context);
  CHECK(relative_error(dropped, attention(x, x, context)) > 0.1);  // the next draw
  rewind(attention);
  CHECK(same_bits(attention(x, x, context), dropped));
  attention.eval();
  const Tensor whole = attention(x, x, context);
  CHECK(same_bits(whole, attention(x, x, context)));
  CHECK(relative_error(dropped, whole) > 0.1);
  // The first token sees only itself, so it is dropped as a whole, or doubled.
  const double ratio = dropped.at(0) / whole.at(0);
  CHECK((ratio == 0 || ratio == doctest::Approx(2)));
}
