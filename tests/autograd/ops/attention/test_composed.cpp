#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

using namespace tapeformer;

TEST_CASE("weights and the gradient of an additive mask equal plain loops, of packed projections too") {
  Generator random(test_seed(20));
  for (const Index S : {7, 5}) {
    const AttentionInputs in = random_inputs(2, 5, S, 6, 2, 3, 4, random);
    const Tensor seed = random_normal({2, 5, 6, 4}, random);
    for (const Shape& shape : {Shape{S}, Shape{5, S}, Shape{6, 1, S}, Shape{2, 1, 5, S}, Shape{2, 6, 5, S}}) {
      CAPTURE(shape.text());
      AttentionOptions options(causal_masks());
      options.mask = random_normal(shape, random);
      options.mask.data<double>()[1] = -kInfinity;
      Tensor weights;
      options.weights = &weights;
      const AttentionOracle expected = attention_oracle(in, options, seed);
      Tape tape;
      tape.watch(options.mask);
      const Tensor y = S == 5 ? packed_attention(pack(in.list()), heads_of(in), options)
                              : composed_attention(in.query, in.key, in.value, options);
      CHECK_BELOW(relative_error(y, expected.y), 1e-13);
      CHECK_BELOW(relative_error(weights, expected.weights), 1e-13);
      const Tensor dmask = tape.gradients(y, {options.mask}, seed)[0];
      CHECK_BELOW(relative_error(dmask, sum_to(expected.dscores, shape)), 1e-12);
      CHECK(dmask.at(1) == 0);
    }
  }
}
