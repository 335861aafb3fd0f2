#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

using namespace tapeformer;

TEST_CASE("weights and the gradient of an additive mask equal plain loops, grouped heads included") {
  Generator random(test_seed(20));
  const AttentionInputs in = random_inputs(2, 5, 7, 6, 2, 3, 4, random);
  const Tensor seed = random_normal({2, 5, 6, 4}, random);
  for (const Shape& shape : {Shape{7}, Shape{5, 7}, Shape{6, 1, 7}, Shape{2, 1, 5, 7}, Shape{2, 6, 5, 7}}) {
    CAPTURE(shape.text());
    AttentionOptions options;
    options.mask = random_normal(shape, random);
    options.mask.data<double>()[1] = -kInfinity;
    options.causal = true;
    Tensor weights;
    options.weights = &weights;
    const AttentionOracle expected = attention_oracle(in, options, seed);
    Tape tape;
    tape.watch(options.mask);
    const Tensor y = composed_attention(in.query, in.key, in.value, options);
    CHECK_BELOW(relative_error(y, expected.y), 1e-13);
    CHECK_BELOW(relative_error(weights, expected.weights), 1e-13);
    const Tensor dmask = tape.gradients(y, {options.mask}, seed)[0];
    CHECK_BELOW(relative_error(dmask, sum_to(expected.dscores, shape)), 1e-12);
    CHECK(dmask.at(1) == 0);
  }
}
