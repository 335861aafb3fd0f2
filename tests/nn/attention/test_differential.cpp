#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/nn/attention/differential.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/config_case.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

AttentionConfig config_of(double window) {
  AttentionConfig config;
  config.kind = "differential", config.width = 6, config.heads = 1, config.key_width = 4;
  config.own["window"] = window;
  return config;
}

}  // namespace

TEST_SUITE("nn/attention/differential") {
  TEST_CASE("one head is the difference of two softmax maps, normed and scaled") {
    const auto layer = random_module<DifferentialAttention>(config_of(0));
    const Tensor x = random_values({1, 5, 6}, 3);
    std::vector<Tensor> p;  // query, key, value, lambda, gain, output
    auto copy = random_module<DifferentialAttention>(config_of(0));
    for (const Parameter& parameter : copy.parameters()) p.push_back(parameter.value());
    const Tensor x_tc = reshape(x, {5, 6});
    const auto map = [&](Index from) {
      const Tensor q = matmul(x_tc, transposed(slice(p[0], 0, from, 4))),
                   k = matmul(x_tc, transposed(slice(p[1], 0, from, 4)));
      return softmax(matmul(q, transposed(k), 0.5));
    };
    const auto dot = [&](Index row) {
      return sum(slice(p[3], 0, row, 1) * slice(p[3], 0, row + 1, 1)).item();
    };
    const double lambda = std::exp(dot(0)) - std::exp(dot(2)) + 0.8;
    const Tensor y = matmul(map(0) - lambda * map(4), matmul(x_tc, transposed(p[2])));
    const Tensor normed = y / sqrt(mean(y * y, {-1}, true) + 1e-6) * p[4] * 0.2;
    CHECK(relative_error(reshape(layer(x, x), {5, 6}), matmul(normed, transposed(p[5]))) < 1e-12);
  }

  TEST_CASE("a query sees the keys of its window alone") {
    const auto narrow = random_module<DifferentialAttention>(config_of(2)),
               wide = random_module<DifferentialAttention>(config_of(0));
    const Tensor x = random_values({1, 5, 6}, 3), two = slice(x, 1, 3, 2);
    AttentionContext causal;
    causal.causal = true;
    CHECK(relative_error(slice(narrow(x, x, causal), 1, 4, 1), slice(wide(two, two, causal), 1, 1, 1)) <
          1e-12);
    CHECK(relative_error(narrow(x, x, causal), wide(x, x, causal)) > 1e-3);
  }

  TEST_CASE("its window is a field of the model's configuration") {
    DecoderOnlyConfig config;
    config.vocabulary = 11, config.width = 8, config.attention.kind = "differential";
    config.attention.own["window"] = 3;
    CHECK(DecoderOnlyConfig::from_json(config.to_json()).attention.own.at("window") == 3);
    config.attention.own["window"] = -1;
    CHECK(message_of<Error>([&] { config.check(); }) ==
          "[decoder_only] window must be from 0 to 2147483647; got -1");
  }
}
