#include <tapeformer/nn/attention/block_compression.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/check_gradients.h>
#include <tapeformer/tests/reference/rounding.h>

#include <cmath>

using namespace tapeformer;

namespace {

BlockCompression compression_of(Index width, Index span, Index stride) {
  return random_module<BlockCompression>(BlockCompressionConfig{width, span, stride});
}

}  // namespace

TEST_CASE("a block is the network's output for its tokens alone, wherever it lies") {
  const BlockCompression compression = compression_of(3, 6, 2);
  const Tensor x = random_values({2, 15, 2, 3}, 3), all = compression(x);
  REQUIRE(all.shape() == Shape{2, 5, 2, 3});  // the last token is in no whole block
  for (Index i = 0; i < 5; ++i)
    CHECK_BELOW(relative_error(compression(slice(x, 1, 2 * i, 6)), slice(all, 1, i, 1)), 1e-13);
  for (Index g = 0; g < 2; ++g)
    CHECK_BELOW(relative_error(compression(slice(x, 2, g, 1)), slice(all, 2, g, 1)), 1e-13);
}

TEST_CASE("one token of width one, by hand") {
  BlockCompression compression = compression_of(1, 1, 1);
  const auto set = [&](const char* name, double value) {
    set_parameter(compression, name, Tensor::full({1, 1}, value, DType::f64));
  };
  set("positions", 0.5), set("up.weight", 2), set("down.weight", 3);
  const Tensor y = compression(Tensor::full({1, 1, 1, 1}, 0.25, DType::f64));
  CHECK_BELOW(deviation(y.at(0), 3 * 1.5 / (1 + std::exp(-1.5))), kFewRoundings);
}

TEST_CASE("fewer tokens than a block give none") {
  const BlockCompression compression = compression_of(3, 4, 2);
  for (const Index tokens : {0, 1, 3})
    CHECK(compression(random_values({2, tokens, 2, 3}, 3)).shape() == Shape{2, 0, 2, 3});
}

TEST_CASE("the gradients of a compression pass the gradient check") {
  for (const Index stride : {1, 2, 4}) {
    BlockCompression compression = compression_of(2, 4, stride);
    const Tensor x = random_values({2, 9, 2, 2}, 3);
    check_gradients("block_compression",
                    gradcheck_module(compression, {{"x", x}}, [&] { return compression(x); }));
  }
}
