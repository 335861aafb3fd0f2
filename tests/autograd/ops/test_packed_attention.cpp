#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

using namespace tapeformer;

namespace {

Op packed_by(const PackedHeads& heads, const AttentionOptions& options) {
  return [=](const std::vector<Tensor>& in) {
    return packed_attention(in[0], heads, with_modifiers(options, in, 1));
  };
}

}  // namespace

TEST_CASE("weights and the gradient of an additive mask come out of a packed projection too") {
  Generator random(test_seed(32));
  const AttentionInputs in = random_inputs(2, 5, 5, 4, 2, 3, 6, random);
  const Tensor packed = pack(in.list()), seed = random_normal({2, 5, 4, 6}, random);
  AttentionOptions options;
  options.mask = random_normal({2, 4, 5, 5}, random);
  Tensor weights;
  options.weights = &weights;
  const AttentionOracle expected = attention_oracle(in, options, seed);
  Tape tape;
  tape.watch(options.mask);
  const Tensor y = packed_attention(packed, heads_of(in), options);
  CHECK_BELOW(relative_error(y, expected.y), 1e-13);
  CHECK_BELOW(relative_error(weights, expected.weights), 1e-13);
  CHECK_BELOW(relative_error(tape.gradients(y, {options.mask}, seed)[0], expected.dscores), 1e-12);
}

TEST_CASE("gradients of both orders of a packed projection") {
  Generator random(test_seed(33));
  const PackedHeads heads{4, 2, 3, 2};
  const Tensor packed = random_normal({2, 3, heads.width()}, random);
  AttentionOptions options;
  options.causal = true;
  options.dropout = 0.2, options.dropout_key = {1, 2, 3};
  check_both_orders("attention, packed", [&] { return packed_attention(packed, heads, options); },
                    {{"packed", packed}});
}

TEST_CASE("a packed projection that is used twice gathers both gradients") {
  Generator random(test_seed(34));
  const AttentionInputs in = random_inputs(1, 9, 9, 2, 1, 4, 3, random);
  const Tensor packed = pack(in.list()), seed = random_normal({1, 9, 2, 3}, random);
  AttentionOptions causal;
  causal.causal = true;
  const auto once = [&](const AttentionOptions& options) {
    return run_op(packed_by(heads_of(in), options), {packed}, seed).gradients[0];
  };
  const Op twice = [&](const std::vector<Tensor>& x) {
    return packed_attention(x[0], heads_of(in)) + packed_attention(x[0], heads_of(in), causal);
  };
  CHECK_BELOW(relative_error(run_op(twice, {packed}, seed).gradients[0], once({}) + once(causal)), 1e-14);
}

TEST_CASE("an empty packed projection gives nothing") {
  CHECK(packed_attention(Tensor::zeros({0, 3, 12}), {2, 1, 3, 3}).shape() == Shape{0, 3, 2, 3});
  CHECK(packed_attention(Tensor::zeros({2, 0, 12}), {2, 1, 3, 3}).shape() == Shape{2, 0, 2, 3});
}
