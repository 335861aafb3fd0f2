#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

using namespace tapeformer;

namespace {

constexpr AttentionSizes kSizes{2, 3, 4, 6, 2, 5, 7};  // B, T, S, H, G, D, E

std::vector<Index> numbers(const kernels::HeadStrides& strides) {
  return {strides.batch, strides.row, strides.head};
}

}  // namespace

TEST_SUITE("autograd/ops/attention/plan") {
  TEST_CASE("strides are those of dense tensors") {
    const kernels::AttentionShape shape = plan_attention(kSizes, {}, default_device()).shape;
    CHECK(numbers(shape.query) == std::vector<Index>{3 * 6 * 5, 6 * 5, 5});
    CHECK(numbers(shape.key) == std::vector<Index>{4 * 2 * 5, 2 * 5, 5});
    CHECK(numbers(shape.value) == std::vector<Index>{4 * 2 * 7, 2 * 7, 7});
    CHECK(shape.scale == doctest::Approx(1 / std::sqrt(5.0)));
    CHECK(shape.key_from == nullptr);
    CHECK(shape.mask == nullptr);
    CHECK(!shape.drops);
  }

  TEST_CASE("masks are read with a stride of zero where they repeat") {
    AttentionOptions options;
    options.mask = booleans({1, 0, 1}, {3, 1});
    const AttentionPlan plan = plan_attention(kSizes, options, default_device());
    CHECK(std::vector<Index>(plan.shape.mask_strides, plan.shape.mask_strides + 4) ==
          std::vector<Index>{0, 0, 1, 0});
    CHECK(!plan.bias().defined());
    options.mask = Tensor::zeros({2, 1, 1, 4});
    const AttentionPlan additive = plan_attention(kSizes, options, default_device());
    CHECK(std::vector<Index>(additive.shape.bias_strides, additive.shape.bias_strides + 4) ==
          std::vector<Index>{4, 0, 0, 1});
    CHECK(additive.bias().defined());
    CHECK(additive.shape.mask == nullptr);
  }

  TEST_CASE("dropout is told as the operation of that name tells it") {
    AttentionOptions options;
    options.dropout = 0.25, options.dropout_key = {1, 2, 3};
    const kernels::AttentionShape shape = plan_attention(kSizes, options, default_device()).shape;
    CHECK(shape.drops);
    CHECK(shape.dropped == 1u << 30);
    CHECK(shape.kept_scale == 4.0 / 3);
    CHECK(shape.dropout.seed == 1);
    CHECK(shape.dropout.stream == (2 ^ std::uint64_t{1} << 63));
    CHECK(shape.dropout.first_block == std::uint64_t{3} << 32);
  }

  TEST_CASE("modifiers are read with a stride of zero where heads share them") {
    AttentionOptions options;
    options.score_function = ScoreFunction::softcap;
    options.score_parameter = Tensor::full({1}, 2, DType::f32);
    options.relative_bias = Tensor::zeros({1, 9});
    const AttentionPlan shared = plan_attention(kSizes, options, default_device());
    CHECK(shared.shape.function == ScoreFunction::softcap);
    CHECK(shared.shape.parameter_stride == 0);
    CHECK(shared.shape.relative_stride == 0);
    CHECK(shared.shape.reach == 4);
    for (Index b = 0; b < 2; ++b)
      for (Index t = 0; t < 3; ++t) CHECK(shared.positions.at(b * 3 + t) == t + 1);  // 4 keys, 3 queries
    options.score_parameter = Tensor::full({6}, 2, DType::f32);
    options.relative_bias = Tensor::zeros({6, 9});
    const AttentionPlan own = plan_attention(kSizes, options, default_device());
    CHECK(own.shape.parameter_stride == 1);
    CHECK(own.shape.relative_stride == 9);
    CHECK(plan_attention(kSizes, {}, default_device()).shape.positions == nullptr);
  }

  TEST_CASE("weights need the composed path") {
    AttentionOptions options;
    CHECK(!needs_composed(options));
    Tensor weights;
    options.weights = &weights;
    CHECK(needs_composed(options));
  }
}
