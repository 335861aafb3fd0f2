#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/nn/attention/multi_head_case.h>

using namespace tapeformer;

TEST_CASE("outputs lose their part along the token's own value") {
  check_formula([](auto& c) { c.exclusive = true; },
                {{}, {}, [](auto&, auto&, const Tensor& y, const Tensor& own) {
                   return y - sum(y * own, {-1}, true) / sum(own * own, {-1}, true) * own;
                 }});
}

TEST_CASE("by hand: (3, 4) without its part along (1, 0) and along (1, 1); a value of zero takes nothing") {
  const Tensor y = Tensor::from<double>({3, 4}, {1, 1, 1, 2});
  const auto without = [&](const std::vector<double>& value) {
    return without_own_value(y, Tensor::from(value, {1, 1, 1, 2}));
  };
  CHECK_BELOW(relative_error(without({2, 0}), Tensor::from<double>({0, 4}, {1, 1, 1, 2})), 1e-13);
  CHECK_BELOW(relative_error(without({1, 1}), Tensor::from<double>({-0.5, 0.5}, {1, 1, 1, 2})), 1e-13);
  CHECK(same_bits(without({0, 0}), y));
}

TEST_CASE("it is for self-attention: another memory is refused, and cross-attention goes without") {
  AttentionConfig config = layer_config("gqa", [](auto& c) { c.exclusive = true; });
  const MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
  const Tensor x = random_values({2, 3, 6}, 3), memory = random_values({2, 4, 6}, 4);
  CHECK(message_of<Error>([&] { layer(x, memory); }) ==
        "[multi_head] exclusive is for self-attention; got a memory that is not the query; try cross=true");
  config.cross = true;
  CHECK_FALSE(config.resolved().exclusive);
}
