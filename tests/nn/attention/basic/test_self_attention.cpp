#include <tapeformer/nn/attention/basic/self_attention.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/nn/walkthrough.h>

using namespace tapeformer;

TEST_CASE("without parameters it gives the figures that PyTorch printed") {
  const Tensor x = walkthrough_tokens();
  Tensor weights;
  const Tensor y = self_attention(x, 1, &weights);
  CHECK(prints_as(y, {0.4421, 0.5931, 0.5790, 0.4419, 0.6515, 0.5683, 0.4431, 0.6496, 0.5671, 0.4304, 0.6298,
                      0.5510, 0.4671, 0.5910, 0.5266, 0.4177, 0.6503, 0.5645}));
  CHECK(prints_as(slice(weights, 0, 1, 1), {0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581}));
}

TEST_CASE("on bare matrices it gives the figures that PyTorch printed") {
  Generator random(test_seed(1));
  TorchGenerator torch(123);
  MatrixSelfAttention attention({3, 2, 0, 0}, random);
  for (auto& [name, parameter] : attention.named_parameters()) parameter.set_value(torch.rand({3, 2}));
  Tensor weights;
  const Tensor y = attention(walkthrough_tokens().to(DType::f32), &weights);
  CHECK(prints_as(
      y, {0.2996, 0.8053, 0.3061, 0.8210, 0.3058, 0.8203, 0.2948, 0.7939, 0.2927, 0.7891, 0.2990, 0.8040}));
  CHECK(prints_as(slice(weights, 0, 1, 1), {0.1500, 0.2264, 0.2199, 0.1311, 0.0906, 0.1820}));
}

TEST_CASE("a batch is its sequences one by one, and value width and scale are free") {
  MatrixSelfAttentionConfig config;
  config.width = 5;
  config.key_width = 3;
  config.value_width = 4;
  config.scale = 0.3;
  const MatrixSelfAttention attention = random_module<MatrixSelfAttention>(config);
  const Tensor x = random_values({2, 6, 5}, 3);
  const Tensor y = attention(x);
  CHECK(y.shape() == Shape{2, 6, 4});
  for (Index b = 0; b < 2; ++b) {
    const Tensor alone = slice(x, 0, b, 1).alias({6, 5});
    CHECK_BELOW(absolute_error(slice(y, 0, b, 1).alias({6, 4}), attention(alone)), 1e-14);
    const Tensor without = slice(self_attention(x, 0.3), 0, b, 1).alias({6, 5});
    CHECK_BELOW(absolute_error(without, self_attention(alone, 0.3)), 1e-14);
  }
  MatrixSelfAttentionConfig usual = config;
  usual.scale = 0;
  const MatrixSelfAttention scaled = random_module<MatrixSelfAttention>(usual);
  usual.scale = 1 / std::sqrt(3.0);
  CHECK(same_bits(scaled(x), random_module<MatrixSelfAttention>(usual)(x)));
}
