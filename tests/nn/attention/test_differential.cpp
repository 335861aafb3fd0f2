#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/differential.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace tapeformer;

namespace {

AttentionConfig differential_config() {
  AttentionConfig config;
  config.kind = "differential";
  config.width = 6, config.heads = 4, config.groups = 2, config.key_width = 8, config.value_width = 5;
  config.rotary = true;
  return config;
}

/// y by the formula in plain loops, of a layer with one head and no rotary positions. [B, T, E] before the
/// output projection.
std::vector<double> by_loops(const std::vector<double>& query, const std::vector<double>& key,
                             const std::vector<double>& value, Index T, Index D, Index E, double lambda) {
  std::vector<double> result(static_cast<std::size_t>(T * E), 0);
  for (Index t = 0; t < T; ++t) {
    for (const Index half : {0, 1}) {
      std::vector<double> weights;
      double total = 0;
      for (Index s = 0; s <= t; ++s) {
        double score = 0;
        for (Index d = half * D / 2; d < (half + 1) * D / 2; ++d)
          score += query[static_cast<std::size_t>(t * D + d)] * key[static_cast<std::size_t>(s * D + d)];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(D) / 2)));
        total += weights.back();
      }
      for (Index s = 0; s <= t; ++s) {
        for (Index e = 0; e < E; ++e)
          result[static_cast<std::size_t>(t * E + e)] += (half == 0 ? 1 : -lambda) *
                                                         weights[static_cast<std::size_t>(s)] / total *
                                                         value[static_cast<std::size_t>(s * E + e)];
      }
    }
  }
  return result;
}

}  // namespace

TEST_SUITE("nn/attention/differential") {
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
      Generator random(test_seed(1));
      DifferentialAttention layer(config, random);
      check_layer_against_golden(
          name, layer,
          [&](const std::map<std::string, Tensor>& in) {
            AttentionContext context;
            context.causal = !config.cross;
            return layer(in.at("x"), config.cross ? in.at("memory") : in.at("x"), context);
          },
          "differential");
    }
  }

  TEST_CASE("one head is the difference of two softmaxes, written out in loops") {
    for (const Index length : {1, 31, 32, 33}) {
      AttentionConfig config;
      config.kind = "differential", config.width = 6, config.heads = 1;
      config.key_width = 4, config.value_width = 6, config.bias = false;
      DifferentialAttention layer = random_module<DifferentialAttention>(config);
      std::map<std::string, Tensor> p;
      for (const auto& [name, parameter] : layer.named_parameters()) p[name] = parameter.value();
      const Tensor x = random_values({1, length, 6}, 3);
      const auto product = [&](const Tensor& weight, Index first, Index rows) {
        std::vector<double> y;
        for (Index t = 0; t < length; ++t) {
          for (Index r = first; r < first + rows; ++r) {
            y.push_back(0);
            for (Index c = 0; c < 6; ++c) y.back() += weight.at(6 * r + c) * x.at(6 * t + c);
          }
        }
        return y;
      };
      const auto part = [&](Index which) {
        double sum = 0;
        for (Index i = 0; i < 2; ++i)
          sum += p["lambda_vectors"].at(4 * which + i) * p["lambda_vectors"].at(4 * which + 2 + i);
        return std::exp(sum);
      };
      std::vector<double> heads =
          by_loops(product(p["query.weight"], 0, 4), product(p["key_value.weight"], 0, 4),
                   product(p["key_value.weight"], 4, 6), length, 4, 6, part(0) - part(1) + 0.8);
      const Tensor expected = Tensor::zeros({1, length, 6}, DType::f64);
      for (Index t = 0; t < length; ++t) {
        double square = 0;
        for (Index e = 0; e < 6; ++e) square += std::pow(heads[static_cast<std::size_t>(6 * t + e)], 2) / 6;
        for (Index o = 0; o < 6; ++o) {
          for (Index e = 0; e < 6; ++e)
            expected.data<double>()[6 * t + o] +=
                p["output.weight"].at(6 * o + e) * (1 - 0.8) * p["head_norm.weight"].at(e) *
                heads[static_cast<std::size_t>(6 * t + e)] / std::sqrt(square + 1e-5);
        }
      }
      AttentionContext context;
      context.causal = true;
      CHECK_BELOW(relative_error(layer(x, x, context), expected), 1e-11);
    }
  }

  TEST_CASE("its weights are differences, which sum to 1 - lambda") {
    DifferentialAttention layer = random_module<DifferentialAttention>(differential_config());
    const Tensor x = random_values({2, 5, 6}, 3);
    Tensor weights;
    AttentionContext context;
    context.causal = true, context.weights = &weights;
    const Tensor y = layer(x, x, context);
    context.weights = nullptr;
    CHECK_BELOW(relative_error(layer(x, x, context), y), 1e-11);
    REQUIRE(weights.shape() == Shape{2, 4, 5, 5});
    // The first token sees itself alone: 1 - lambda.
    for (Index row = 0; row < 2 * 4 * 5; ++row) {
      double total = 0;
      for (Index s = 0; s < 5; ++s) total += weights.at(5 * row + s);
      CHECK_BELOW(deviation(total, weights.at(0)), 1e-12);
    }
  }

  TEST_CASE("a mask of each head is of both of its queries") {
    const Tensor x = random_values({2, 5, 6}, 3);
    const DifferentialAttention layer = random_module<DifferentialAttention>(differential_config());
    AttentionContext causal, masked;
    causal.causal = true;
    const Tensor expected = layer(x, x, causal);
    for (const Shape& shape : {Shape{5, 5}, Shape{4, 5, 5}, Shape{2, 4, 5, 5}, Shape{2, 1, 5, 5}}) {
      CAPTURE(shape.text());
      const Tensor allowed = Tensor::empty(shape, DType::boolean);
      for (Index i = 0; i < allowed.elements(); ++i) allowed.data<bool>()[i] = i % 5 <= i / 5 % 5;
      masked.mask = allowed;
      CHECK_BELOW(relative_error(layer(x, x, masked), expected), 1e-13);
    }
    // Another mask for one head changes what that head gives.
    masked.mask = Tensor::full({4, 5, 5}, 0, DType::f64);
    const Tensor before = layer(x, x, masked);
    masked.mask.data<double>()[5 * 5 * 3] = 2;
    CHECK(relative_error(layer(x, x, masked), before) > 1e-6);
  }

  TEST_CASE("a model's layers begin with lambdas that grow with their number") {
    DecoderOnlyConfig config;
    config.vocabulary = 5, config.attention.kind = "differential";
    CHECK(config.attention_config(0).lambda_initial == doctest::Approx(0.2));
    CHECK(config.attention_config(3).lambda_initial == doctest::Approx(0.8 - 0.6 * std::exp(-0.9)));
    config.attention.kind = "mha";
    CHECK(config.attention_config(3).lambda_initial == 0.8);
  }

  TEST_CASE("heads that cannot be halved, and rotary positions across inputs, are refused") {
    AttentionConfig config = differential_config();
    config.key_width = 5, config.rotary = false;
    CHECK(
        message_of<Error>([&] { config.check(); }) ==
        "[attention] differential attention halves its heads; got attention=differential, a width of 5; try "
        "an even width of the heads");
    const DifferentialAttention layer = random_module<DifferentialAttention>(differential_config());
    const Tensor x = random_values({2, 3, 6}, 3), memory = random_values({2, 4, 6}, 4);
    CHECK(message_of<Error>([&] { layer(x, memory); }) ==
          "[differential] rotary positions are for self-attention; got a memory that is not the query; try "
          "cross=true");
  }
}
