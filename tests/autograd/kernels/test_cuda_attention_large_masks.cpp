#include <tapeformer/tests/autograd/kernels/attention_path_case.h>

#include <algorithm>
#include <limits>

// Finite masks over whole rows, in bf16: the logarithm of a row's sum is rounded away.
using namespace tapeformer;

namespace {

/// Every third row is covered.
Tensor thirds_covered(double by, Index queries, Index keys) {
  const Tensor mask = Tensor::zeros({queries, keys}, DType::f64, Device::cpu());
  for (Index row = 0; row < queries; row += 3) std::fill_n(mask.data<double>() + row * keys, keys, by);
  return mask;
}

}  // namespace

TEST_CASE("rows under a large finite mask have the gradients of the plain formula") {
  const AttentionBy path("tensor_cores");
  const Index keys = 150;
  constexpr double kLowest = std::numeric_limits<float>::lowest(), kLowestBf16 = -0x1.FEp127;
  const Index shapes[][2] = {{5, 16}, {40, 64}, {20, 136}};  // queries and width; few queries are split
  for (const auto& shape : shapes) {
    for (const double by : {1e9, -1e6, -1e9, kLowestBf16, kLowest}) {
      for (const bool modifies : {false, true}) {
        CAPTURE(shape[0]);
        CAPTURE(by);
        CAPTURE(modifies);
        Generator random(test_seed(static_cast<std::uint64_t>(shape[0])));
        const AttentionInputs in =
            as_type(random_inputs(1, shape[0], keys, 2, 1, shape[1], 16, random), DType::bf16);
        AttentionOptions options;
        options.mask = thirds_covered(by, shape[0], keys);
        if (modifies) options.score_function = ScoreFunction::softcap, options.score_parameter = values({2});
        const Tensor seed = as_type(host_normal({1, shape[0], 2, 16}, random), DType::bf16);
        // Scores in f32 are rounded after adding the mask, as in the kernels.
        const auto by_formula = [&](const std::vector<Tensor>& x) {
          AttentionOptions single = moved(options, Device::cpu());
          for (Tensor* modifier : modifiers_of(single)) *modifier = modifier->to(DType::f32);
          return composed_attention(x[0], x[1], x[2], single);
        };
        std::vector<Tensor> inputs = in.list();
        for (Tensor& x : inputs) x = x.to(Device::cpu()).to(DType::f32);
        const OpResult expected = run_op(by_formula, inputs, seed.to(DType::f32));
        const auto by_kernels = [&](const std::vector<Tensor>& x) {
          return scaled_dot_product_attention(x[0], x[1], x[2], options_on_gpu(options));
        };
        const OpResult got = run_op(by_kernels, inputs_on_gpu(in, DType::bf16), on_gpu(seed.to(DType::bf16)));
        CHECK_BELOW(relative_error(readable(got.y), expected.y), 0x1p-6);
        for (std::size_t i = 0; i < 3; ++i) {
          CAPTURE(i);
          CHECK_BELOW(relative_error(readable(got.gradients[i]), expected.gradients[i]), 0x1p-6);
        }
      }
    }
  }
}
