#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/autograd/tape.h>
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

  TEST_CASE("weights, and additive masks that want a gradient, need the composed path") {
    AttentionOptions options;
    options.mask = Tensor::zeros({4});
    CHECK(!needs_composed("test", options));
    Tensor weights;
    options.weights = &weights;
    CHECK(needs_composed("test", options));
    options.weights = nullptr;
    Tape tape;
    CHECK(!needs_composed("test", options));
    tape.watch(options.mask);
    CHECK(needs_composed("test", options));
    const Parameter bias(Tensor::zeros({4}));
    options.mask = bias;
    CHECK(needs_composed("test", options));
    Parameter frozen(Tensor::zeros({4}));
    frozen.set_trainable(false);
    options.mask = frozen;
    CHECK(!needs_composed("test", options));
    const NoGradGuard pause;
    options.mask = bias;
    CHECK(!needs_composed("test", options));
  }
}
