#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

using namespace tapeformer;

TEST_CASE("masks and modifiers are read with a stride of zero where they repeat") {
  const AttentionSizes sizes{2, 3, 4, 6, 2, 5, 7};  // B, T, S, H, G, D, E
  AttentionOptions options;
  options.mask = booleans({1, 0, 1}, {3, 1});
  options.score_function = ScoreFunction::softcap;
  options.score_parameter = Tensor::full({1}, 2, DType::f32);
  options.relative_bias = Tensor::zeros({1, 9});
  const AttentionPlan plan = plan_attention(sizes, options, default_device());
  CHECK(std::vector<Index>(plan.shape.mask_strides, plan.shape.mask_strides + 4) ==
        std::vector<Index>{0, 0, 1, 0});
  CHECK(!plan.bias().defined());
  CHECK(plan.shape.parameter_stride == 0);
  CHECK(plan.shape.relative_stride == 0);
  CHECK(plan.shape.reach == 4);
}
