#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/attention_rounding.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

using namespace tapeformer;

namespace {

/// All modifiers that go together, for 4 heads and at most 9 positions.
AttentionOptions all_modifiers(ScoreFunction function, AttentionWeighting weighting, Generator& random) {
  AttentionOptions options;
  options.score_function = function;
  if (function != ScoreFunction::none) options.score_parameter = values({1.5, 0.7, 2, 1}, {4});
  options.relative_bias = random_normal({4, 17}, random);
  options.mask = random_normal({3, 5}, random);
  options.weighting = weighting;
  if (weighting == AttentionWeighting::softmax) options.sinks = random_normal({4}, random);
  return options;
}

constexpr ScoreFunction kFunctions[] = {ScoreFunction::none, ScoreFunction::softcap};
constexpr AttentionWeighting kWeightings[] = {AttentionWeighting::softmax, AttentionWeighting::sigmoid};

/// One query of width 1 and keys that make its scores, with values 1, 2, ...: y is the weights' sum of those.
OpResult run_scores(const std::vector<double>& scores, const AttentionOptions& options,
                    const std::vector<Tensor>& modifiers) {
  const auto S = static_cast<Index>(scores.size());
  std::vector<double> value;
  for (Index s = 1; s <= S; ++s) value.push_back(static_cast<double>(s));
  const Tensor key = Tensor::from(scores, {1, S, 1, 1}), values_bshe = Tensor::from(value, {1, S, 1, 1});
  return run_op(attention_by(scaled_dot_product_attention, options),
                joined({values({1}, {1, 1, 1, 1}), key, values_bshe}, modifiers), values({1}, {1, 1, 1, 1}));
}

constexpr Index kQueries = 5;

/// Rows of a mask [T, S] that it covers as a whole, between others.
Tensor rows_covered(double by, Index keys) {
  const Tensor mask = Tensor::zeros({kQueries, keys}, DType::f64);
  for (const Index row : {0, 3}) std::fill_n(mask.data<double>() + row * keys, keys, by);
  return mask;
}

/// The last inputs are the mask and, if there are any, the sinks.
Op masked_attention(AttentionFunction function, bool has_sinks) {
  return [=](const std::vector<Tensor>& x) {
    AttentionOptions options;
    options.mask = x[3];
    if (has_sinks) options.sinks = x[4];
    return function(x[0], x[1], x[2], options);
  };
}

}  // namespace

TEST_CASE("only modifiers that want a gradient get one, queries and keys none") {
  Generator random(test_seed(33));
  const AttentionInputs in = random_inputs(1, 5, 9, 4, 2, 3, 4, random);
  AttentionOptions options = all_modifiers(ScoreFunction::softcap, AttentionWeighting::softmax, random);
  options.mask = random_normal({5, 9}, random);
  const Tensor seed = random_normal({1, 5, 4, 4}, random);
  const AttentionOracle expected = attention_oracle(in, options, seed);
  for (std::size_t wanted = 0; wanted < 4; ++wanted) {
    const Tensor x = list_of_modifiers(options)[wanted];
    Tape tape;
    tape.watch(x);
    const Tensor y = scaled_dot_product_attention(in.query, in.key, in.value, options);
    CHECK_BELOW(relative_error(tape.gradients(y, {x}, seed)[0], expected.modifiers[wanted]), 1e-12);
  }
}

TEST_CASE("gradients of both orders reach every modifier") {
  Generator random(test_seed(34));
  const AttentionInputs in = random_inputs(2, 3, 5, 4, 2, 3, 2, random);
  for (const AttentionWeighting weighting : kWeightings) {
    for (const ScoreFunction function : kFunctions) {
      AttentionOptions options = all_modifiers(function, weighting, random);
      options.causal = true;
      options.key_lengths = integers({5, 3}, {2});
      std::vector<std::pair<std::string, Tensor>> inputs{
          {"query", in.query}, {"key", in.key}, {"value", in.value}};
      const std::vector<Tensor> modifiers = list_of_modifiers(options);
      for (std::size_t i = 0; i < modifiers.size(); ++i)
        inputs.emplace_back("modifier " + std::to_string(i), modifiers[i]);
      kernels::with_function(function, [&](auto f) {
        const char* name = weighting == AttentionWeighting::softmax ? "softmax" : "sigmoid";
        check_both_orders(
            std::string("attention, ") + decltype(f)::name + ", " + name,
            [&] { return scaled_dot_product_attention(in.query, in.key, in.value, options); }, inputs);
      });
    }
  }
}

TEST_CASE("sinks far above or below the scores neither overflow nor disappear") {
  for (const double sink : {-1000.0, -1.0, 1000.0}) {
    AttentionOptions options;
    options.sinks = values({sink}, {1});
    const OpResult got = run_scores({2, 0}, options, {options.sinks});
    const double share = 1 / (1 + std::exp(sink) / (1 + std::exp(2)));
    const double mean = (std::exp(2) + 2) / (1 + std::exp(2));
    CHECK_BELOW(deviation(got.y.item(), sink > 500 ? 0 : share * mean), 1e-14);
    CHECK_BELOW(deviation(got.gradients[3].item(), sink > 500 ? 0 : -(1 - share) * share * mean), 1e-13);
  }
}

// 50 next to a mask whose neighbours are 128 away: only the sum of two counts, and only if it is made first.
TEST_CASE("a relative bias is added to the scores before a mask, however large that is") {
  AttentionOptions options;
  options.relative_bias = Tensor::full({1, 5}, 50, DType::f64);
  options.mask = Tensor::full({1, 3}, -1e18, DType::f64);
  const OpResult got = run_scores({50, 0, 0}, options, {options.mask, options.relative_bias});
  CHECK_BELOW(deviation(got.y.item(), 1), 1e-14);
}

TEST_CASE("nothing in, nothing out; no keys give zeros; all gradients are zero") {
  Generator random(test_seed(38));
  for (const AttentionFunction path : kAttentionPaths) {
    for (const bool modified : {false, true}) {
      for (const auto& [B, T, S, E] :
           {std::array<Index, 4>{0, 3, 4, 5}, {2, 0, 4, 5}, {2, 9, 0, 2}, {2, 3, 4, 0}}) {
        AttentionOptions options;
        if (modified) options = all_modifiers(ScoreFunction::softcap, AttentionWeighting::softmax, random);
        if (modified) options.mask = random_normal({T, 1}, random);
        options.causal = modified;
        const AttentionInputs in = random_inputs(B, T, S, 4, 2, 3, E, random);
        const OpResult got =
            run_op(attention_by(path, options), joined(in.list(), list_of_modifiers(options)),
                   random_normal({B, T, 4, E}, random));
        CHECK(got.y.shape() == Shape{B, T, 4, E});
        CHECK(largest(got.y) == 0);
        for (const Tensor& dx : got.gradients) CHECK(largest(dx) == 0);
      }
    }
  }
}

// Finite masks may be so large that the scores, and the logarithm of their sum, are rounded away.
TEST_CASE("gradients in f32 are at most three times as far off as the plain formula's, whatever the mask") {
  Generator random(test_seed(31));
  const Index most = default_device().is_cuda() ? 150 : 400;
  for (const double by :
       {-100.0, -1e4, -1e6, -1e9, 1e9, static_cast<double>(std::numeric_limits<float>::lowest())}) {
    std::array<double, 5> ours{}, plain{};  // sums over the draws, for each input
    for (const Index keys : {Index{100}, Index{129}, most}) {
      for (const bool has_sinks : {false, true}) {
        std::vector<Tensor> inputs = random_inputs(1, kQueries, keys, 2, 1, 8, 6, random).list();
        inputs.push_back(rows_covered(by, keys));
        if (has_sinks) inputs.push_back(random_normal({2}, random));
        const Tensor seed = random_normal({1, kQueries, 2, 6}, random);
        const std::vector<Tensor> single = in_type(inputs, DType::f32), wide = in_type(single, DType::f64);
        const OpResult exact = run_op(masked_attention(composed_attention, has_sinks), wide, seed),
                       naive = run_op(masked_attention(composed_attention, has_sinks), single, seed),
                       got = run_op(masked_attention(scaled_dot_product_attention, has_sinks), single, seed);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          ours[i] += rms_error(got.gradients[i], exact.gradients[i]);
          plain[i] += std::max(0x1p-17, rms_error(naive.gradients[i], exact.gradients[i]));
        }
      }
    }
    for (std::size_t i = 0; i < ours.size(); ++i) {
      CAPTURE(by);
      CAPTURE(i);
      CHECK_BELOW(ours[i], 3 * plain[i]);
    }
  }
}

TEST_CASE("additive scores under a large mask have the gradients of equal weights") {
  Generator random(test_seed(33));
  const Index keys = 200;
  const Tensor query = random_normal({2, 3, 2, 4}, random), key = random_normal({2, keys, 2, 4}, random),
               value = random_normal({2, keys, 2, 3}, random), weight = random_normal({2, 4}, random),
               seed = random_normal({2, 3, 2, 3}, random);
  const auto run = [&](const Tensor& factors, double by, DType type) {
    const Op op = [&](const std::vector<Tensor>& x) {
      AttentionOptions options;
      options.mask = Tensor::full({1, keys}, by, type);
      return additive_attention(x[0], x[1], x[2], x[3], options);
    };
    return run_op(op, {query.to(type), key.to(type), value.to(type), factors.to(type)}, seed);
  };
  const OpResult got = run(weight, -1e9, DType::f32), equal = run(weight * 0.0, 0, DType::f64);
  CHECK_BELOW(relative_error(got.gradients[2], equal.gradients[2]), 1e-5);
  CHECK_BELOW(relative_error(got.gradients[3], equal.gradients[3]), 1e-5);
}
