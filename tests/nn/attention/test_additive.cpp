#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

#include <algorithm>

using namespace tapeformer;

namespace {

AttentionConfig sized(Index width, Index memory_width, Index hidden_width, Index value_width) {
  AttentionConfig config;
  config.width = width, config.heads = 3, config.memory_width = memory_width;
  config.key_width = hidden_width, config.value_width = value_width;
  return config;
}

const AttentionConfig kWideAdditive = sized(6, 4, 5, 7);

/// The layer in plain loops. `may_attend(b, t, s)`.
template <class MayAttend>
Tensor layer_oracle(AdditiveAttention& layer, Index heads, const Tensor& query, const Tensor& memory,
                    const MayAttend& may_attend) {
  std::map<std::string, Tensor> p;
  for (const auto& [name, parameter] : layer.named_parameters()) p[name] = parameter.value();
  const auto affine = [&](const Tensor& x, Index row, const std::string& name, Index output) {
    const Index inputs = x.size(-1);
    double y = p.count(name + ".bias") > 0 ? p[name + ".bias"].at(output) : 0;
    for (Index i = 0; i < inputs; ++i)
      y += p[name + ".weight"].at(output * inputs + i) * x.at(row * inputs + i);
    return y;
  };
  const Index T = query.size(1), S = memory.size(1), D = p["score"].size(1),
              E = p["value.weight"].size(0) / heads;
  const Tensor mixed = Tensor::zeros({query.size(0), T, heads * E}, DType::f64);
  for (Index row = 0; row < query.size(0) * T; ++row) {
    const Index b = row / T;
    for (Index h = 0; h < heads; ++h) {
      double total = 0;
      for (Index s = 0; s < S; ++s) {
        if (!may_attend(b, row % T, s)) continue;
        double score = 0;
        for (Index d = h * D; d < (h + 1) * D; ++d)
          score += p["score"].at(d) *
                   std::tanh(affine(query, row, "query", d) + affine(memory, b * S + s, "key", d));
        total += std::exp(score);
        for (Index e = 0; e < E; ++e)
          mixed.data<double>()[(row * heads + h) * E + e] +=
              std::exp(score) * affine(memory, b * S + s, "value", h * E + e);
      }
      for (Index e = 0; e < E; ++e) mixed.data<double>()[(row * heads + h) * E + e] /= total > 0 ? total : 1;
    }
  }
  const Index C = query.size(2);
  return filled(query.shape(), [&](Index i) { return affine(mixed, i / C, "output", i % C); });
}

AttentionContext padded(const std::vector<Index>& lengths, Index longest) {
  AttentionContext context;
  context.key_mask = real_tokens(lengths, longest);
  return context;
}

}  // namespace

TEST_SUITE("nn/attention/additive") {
  TEST_CASE("it agrees with plain loops for widths that all differ, self and cross, under each mask") {
    auto cross = random_module<AdditiveAttention>(kWideAdditive);
    const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 8, 4}, 4);
    CHECK_BELOW(relative_error(cross(query, memory), layer_oracle(cross, 3, query, memory,
                                                                  [](Index, Index, Index) { return true; })),
                1e-13);
    const AttentionContext padding = padded({0, 8}, 8);
    CHECK_BELOW(
        relative_error(cross(query, memory, padding),
                       layer_oracle(cross, 3, query, memory, [](Index b, Index, Index) { return b == 1; })),
        1e-13);

    AttentionConfig config;
    config.width = 6, config.heads = 3, config.bias = false;
    auto self = random_module<AdditiveAttention>(config);
    AttentionContext causal;
    causal.causal = true;
    CHECK_BELOW(
        relative_error(self(query, query, causal),
                       layer_oracle(self, 3, query, query, [](Index, Index t, Index s) { return s <= t; })),
        1e-13);
    CHECK(self.parameter_count() == 4 * 36 + 6);
  }

  TEST_CASE("outputs and gradients are those of PyTorch") {
    Generator random(test_seed(1));
    AdditiveAttention self(sized(12, 0, 5, 7), random), cross(sized(12, 10, 5, 7), random);
    using In = std::map<std::string, Tensor>;
    for (const char* name : {"layer_self", "layer_causal"}) {
      check_layer_against_golden(
          name, self,
          [&](const In& in) {
            AttentionContext context;
            context.causal = std::string(name) == "layer_causal";
            return self(in.at("x"), in.at("x"), context);
          },
          "additive");
    }
    check_layer_against_golden(
        "layer_cross", cross,
        [&](const In& in) {
          AttentionContext context;
          context.key_mask = in.at("memory_may_attend");
          return cross(in.at("x"), in.at("memory"), context);
        },
        "additive");
  }

  TEST_CASE("weights are handed out; evaluation drops nothing") {
    AttentionConfig config = kWideAdditive;
    config.dropout = 0.5;
    auto layer = random_module<AdditiveAttention>(config);
    const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 8, 4}, 4);
    CHECK(relative_error(layer(query, memory), layer(query, memory)) > 0.01);
    layer.eval();
    Tensor weights;
    AttentionContext context;
    context.weights = &weights;
    CHECK_BELOW(relative_error(layer(query, memory, context), layer(query, memory)), 1e-13);
    REQUIRE(weights.shape() == Shape{2, 3, 5, 8});
    for (Index row = 0; row < 30; ++row) {
      double total = 0;
      for (Index s = 0; s < 8; ++s) total += weights.at(row * 8 + s);
      CHECK_BELOW(deviation(total, 1), 1e-14);
    }
  }

  TEST_CASE("parameters start Xavier uniform, biases zero") {
    Generator random(test_seed(1));
    AttentionConfig config;
    config.width = 64, config.heads = 4;
    AdditiveAttention layer(config, random);
    for (const auto& [path, parameter] : layer.named_parameters()) {
      const std::string& name = path;
      CAPTURE(name);
      const Tensor x = parameter;
      double largest = 0;
      for (Index i = 0; i < x.elements(); ++i) largest = std::max(largest, std::fabs(x.at(i)));
      const double bound = x.rank() == 1 ? 0 : name == "score" ? std::sqrt(6.0 / 17) : std::sqrt(6.0 / 128);
      CHECK(largest <= bound);
      CHECK(largest >= 0.9 * bound);
    }
    CHECK(layer.parameter_count() == 4 * 64 * 64 + 3 * 64 + 64);
  }
}
