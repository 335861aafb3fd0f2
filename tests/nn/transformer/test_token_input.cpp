#include <tapeformer/nn/transformer/token_input.h>
#include <tapeformer/tests/nn/normal_case.h>
#include <tapeformer/tests/reference/check_below.h>
#include <tapeformer/tests/reference/seed.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace tapeformer;

TEST_CASE("a token enters as sqrt(C) times its embedding plus its sinusoid") {
  Generator random(test_seed(3));
  TokenInput input({5, 4, 0, PositionKind::sinusoidal, 8}, random);
  const Tensor x_btc = input(Tensor::from<std::int32_t>({4, 1, 1}, {1, 3}));
  const Tensor table = input.embedding().weight().value();
  CHECK(x_btc.shape() == Shape{1, 3, 4});
  // Token 1 is at position 2: angles 2 / 10000^0 and 2 / 10000^(2/4).
  const double sinusoid[4] = {std::sin(2.0), std::cos(2.0), std::sin(0.02), std::cos(0.02)};
  for (Index i = 0; i < 4; ++i) {
    CHECK_BELOW(deviation(x_btc.at(8 + i), 2 * table.at(4 + i) + sinusoid[i]), 1e-6);
  }
}

TEST_CASE("embeddings start with standard deviation 1/sqrt(C)") {
  Generator random(test_seed(3));
  TokenInput input({400, 64, 0, PositionKind::sinusoidal, 8}, random);
  check_normal(input.embedding().weight().value(), 1.0 / 8);
}

TEST_CASE("a given scale replaces sqrt(C), in the sum and in the initial values") {
  Generator random(test_seed(3));
  TokenInput input({500, 16, 0, PositionKind::learned, 8, 4}, random);
  const Tensor table = input.embedding().weight().value();
  check_normal(table, 1.0 / 4);
  const Tensor positions = input.named_parameters()[1].second.value();
  const Tensor x_btc = input(Tensor::from<std::int32_t>({4, 1}, {1, 2}), 5);
  for (Index i = 0; i < 16; ++i) {
    const double expected = 4 * table.at(16 + i) + positions.at(6 * 16 + i);
    CHECK_BELOW(deviation(x_btc.at(16 + i), expected), 1e-6);
  }
}
