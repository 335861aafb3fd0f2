#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/basic/self_attention.h>
#include <tapeformer/nn/attention/basic/single_head.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/nn/walkthrough.h>
#include <tapeformer/tests/reference/check_gradients.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

SingleHeadConfig widths(Index width, Index key_width, Index value_width = 0) {
  SingleHeadConfig config;
  config.width = width;
  config.key_width = key_width;
  config.value_width = value_width;
  return config;
}

/// The walk-through's layer, its weights drawn as PyTorch drew them.
SingleHeadAttention walkthrough_layer(std::uint64_t seed, bool causal) {
  Generator random(test_seed(1));
  TorchGenerator torch(seed);
  SingleHeadConfig config = widths(3, 2);
  config.causal = causal;
  SingleHeadAttention layer(config, random);
  for (auto& [name, parameter] : layer.named_parameters()) parameter.set_value(torch.linear_weight(2, 3));
  return layer;
}

Tensor walkthrough_batch(Index copies) {
  const Tensor x = walkthrough_tokens().to(DType::f32).alias({1, 6, 3});
  return concat(TensorList(static_cast<std::size_t>(copies), x), 0);
}

}  // namespace

TEST_CASE("with linear layers it gives the figures that PyTorch printed, and its weights") {
  const auto attention = walkthrough_layer(789, false);
  const Tensor x = walkthrough_batch(1);
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

TEST_CASE("causal attention of a batch gives the figures that PyTorch printed") {
  const auto attention = walkthrough_layer(123, true);
  const Tensor x = walkthrough_batch(2);
  const Tensor y = attention(x, x);
  for (Index b = 0; b < 2; ++b) {
    CHECK(prints_as(slice(y, 0, b, 1), {-0.4519, 0.2216, -0.5874, 0.0058, -0.6300, -0.0632, -0.5675, -0.0843,
                                        -0.5526, -0.0981, -0.5299, -0.1081}));
  }
}

TEST_CASE(
    "multi-head attention of a batch, from width three to two, gives the figures that PyTorch printed") {
  AttentionConfig config;
  config.width = 3, config.output_width = 2, config.heads = 2;
  config.packed = config.bias = false, config.output_bias = true;
  Generator random(test_seed(1));
  MultiHeadAttention heads(config, random);
  TorchGenerator torch(123);
  for (Parameter& drawn : heads.parameters()) {  // query, key, value, output and its bias
    const Shape& shape = drawn.value().shape();
    drawn.set_value(shape.rank() == 2 ? torch.linear_weight(shape[0], shape[1])
                                      : torch.linear_bias(shape[0], 2));
  }
  AttentionContext causal;
  causal.causal = true;
  const Tensor x = walkthrough_batch(2), y = heads(x, x, causal);
  for (Index b = 0; b < 2; ++b) {
    CHECK(prints_as(slice(y, 0, b, 1), {0.3190, 0.4858, 0.2943, 0.3897, 0.2856, 0.3593, 0.2693, 0.3873,
                                        0.2639, 0.3928, 0.2575, 0.4028}));
  }
}

TEST_CASE("dropout zeroes weights and scales the rest; evaluation does not drop") {
  SingleHeadConfig config = widths(5, 3, 30);
  config.dropout = 0.5, config.causal = true;
  auto attention = random_module<SingleHeadAttention>(config);
  // Values that are unit vectors of their own: outputs are the dropped weights.
  const Index T = 30;
  const Tensor x = random_values({1, T, 5}, 3);
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
