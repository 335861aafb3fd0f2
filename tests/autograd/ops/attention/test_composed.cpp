#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

using namespace tapeformer;

TEST_CASE("weights handed out are those of the modified scores, before dropout, of packed projections too") {
  Generator random(test_seed(20));
  for (const Index S : {7, 5}) {
    for (const AttentionWeighting weighting : {AttentionWeighting::softmax, AttentionWeighting::sigmoid}) {
      const AttentionInputs in = random_inputs(2, 5, S, 6, 2, 3, 4, random);
      AttentionOptions options(causal_masks());
      options.score_function = ScoreFunction::softcap, options.score_parameter = values({1.5});
      options.mask = random_normal({6, 1, S}, random);
      options.mask.data<double>()[1] = -kInfinity;
      options.weighting = weighting, options.dropout = 0.4;
      if (weighting == AttentionWeighting::softmax) options.sinks = random_normal({6}, random);
      Tensor weights;
      options.weights = &weights;
      const Tensor y = S == 5 ? packed_attention(pack(in.list()), heads_of(in), options)
                              : scaled_dot_product_attention(in.query, in.key, in.value, options);
      const AttentionOracle expected = attention_oracle(in, options, y);
      CHECK_BELOW(relative_error(y, expected.y), 1e-13);
      CHECK_BELOW(relative_error(weights, expected.weights), 1e-13);
    }
  }
}
