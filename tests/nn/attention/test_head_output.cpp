#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/nn/attention/head_output.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace tapeformer;

namespace {

HeadGates random_module_of(const AttentionConfig& config) {
  Generator random(test_seed(1));
  HeadGates gates(config.resolved(), random);
  gates.to(DType::f64);
  randomise(gates, 2);
  return gates;
}

}  // namespace

TEST_SUITE("nn/attention/head_output") {
  TEST_CASE("an exclusive output has no part along its token's value, and a value of zero takes nothing") {
    const Tensor y = random_values({2, 3, 4, 5}, 3), value = random_values({2, 3, 2, 5}, 4);
    const Tensor z = reshape(without_own_value(y, value), {2, 3, 2, 2, 5});
    CHECK_BELOW(absolute_error(sum(z * reshape(value, {2, 3, 2, 1, 5}), {-1}),
                               Tensor::zeros({2, 3, 2, 2}, DType::f64)),
                1e-13);
    CHECK(same_bits(without_own_value(y, Tensor::zeros(value.shape(), DType::f64)), y));
    // (3, 4) without its part along (1, 0), and along (1, 1).
    const Tensor one = Tensor::from<double>({3, 4}, {1, 1, 1, 2});
    CHECK_BELOW(relative_error(without_own_value(one, Tensor::from<double>({2, 0}, {1, 1, 1, 2})),
                               Tensor::from<double>({0, 4}, {1, 1, 1, 2})),
                1e-13);
    CHECK_BELOW(relative_error(without_own_value(one, Tensor::from<double>({1, 1}, {1, 1, 1, 2})),
                               Tensor::from<double>({-0.5, 0.5}, {1, 1, 1, 2})),
                1e-13);
  }

  TEST_CASE("gates are sigmoids of a projection, for a head or for each of its components") {
    AttentionConfig config;
    config.width = 3, config.heads = 2, config.key_width = config.value_width = 2;
    const Tensor x = random_values({1, 2, 3}, 3), heads = random_values({1, 2, 2, 2}, 4);
    CHECK(same_bits(random_module_of(config)(heads, x), heads));
    for (const OutputGate gate : {OutputGate::head, OutputGate::element}) {
      config.output_gate = gate;
      HeadGates gates = random_module_of(config);
      const Index width = gate == OutputGate::head ? 1 : 2;
      const Tensor weight = gates.named_parameters().front().second.value();
      REQUIRE(weight.shape() == Shape{2 * width, 3});
      const Tensor y = gates(heads, x);
      for (Index t = 0; t < 2; ++t) {
        for (Index h = 0; h < 2; ++h) {
          for (Index e = 0; e < 2; ++e) {
            double score = 0;
            const Index row = width == 1 ? h : 2 * h + e;
            for (Index c = 0; c < 3; ++c) score += weight.at(3 * row + c) * x.at(3 * t + c);
            const Index at = 4 * t + 2 * h + e;
            CHECK_BELOW(deviation(y.at(at), heads.at(at) / (1 + std::exp(-score))), 1e-12);
          }
        }
      }
    }
  }
}
