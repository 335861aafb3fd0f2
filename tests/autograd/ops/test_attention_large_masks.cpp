#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/attention_rounding.h>

#include <algorithm>
#include <array>
#include <limits>

// Finite masks so large that the scores, and the logarithm of their sum, are rounded away.
using namespace tapeformer;

namespace {

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

std::vector<Tensor> to_f32(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> rounded;
  for (const Tensor& x : inputs) rounded.push_back(x.to(DType::f32));
  return rounded;
}

}  // namespace

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
        const std::vector<Tensor> single = to_f32(inputs);
        std::vector<Tensor> exact_inputs;
        for (const Tensor& x : single) exact_inputs.push_back(x.to(DType::f64));
        const OpResult exact = run_op(masked_attention(composed_attention, has_sinks), exact_inputs, seed),
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
