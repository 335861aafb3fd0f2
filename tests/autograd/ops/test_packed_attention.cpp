#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/attention_random.h>
#include <tapeformer/tests/autograd/ops/attention_rounding.h>
#include <tapeformer/tests/reference/random_cases.h>

using namespace tapeformer;

namespace {

Op packed_by(const PackedHeads& heads, const AttentionOptions& options) {
  return [=](const std::vector<Tensor>& in) {
    return packed_attention(in[0], heads, with_modifiers(options, in, 1));
  };
}

/// Output and the one gradient against plain loops over the parts. `junk` stands where the masks leave out.
void check_packed(const AttentionInputs& in, const AttentionOptions& options, Generator& random,
                  double junk = kNan) {
  const Tensor seed = random_normal({in.B(), in.T(), in.H(), in.value.size(3)}, random);
  const AttentionOracle parts = attention_oracle(in, options, seed);
  const Tensor packed = pack(spoiled({in, options}, junk).list());
  const AttentionOracle off = attention_rounding(in, options, seed, parts, DType::f32);
  const OpResult expected{parts.y, {pack(parts.gradients)}}, bound{off.y, {pack(off.gradients)}};
  for (const DType type : {DType::f64, DType::f32}) {
    CAPTURE(name_of(type));
    const OpResult got = run_op(packed_by(heads_of(in), options), {packed.to(type)}, seed);
    if (type == DType::f64) CHECK_BELOW(attention_error(got, expected, 0.1), 1e-11);
    if (type == DType::f32) check_within(got, expected, bound);
  }
}

}  // namespace

TEST_SUITE("autograd/ops/attention") {
  TEST_CASE("a packed projection is read, and its gradient written, as its three parts") {
    for (const Index T : {1, 2, 31, 32, 33, 65, 130}) {
      CAPTURE(T);
      Generator random(test_seed(static_cast<std::uint64_t>(T)));
      const Index B = T > 40 ? 1 : 2;
      AttentionOptions options;
      check_packed(random_inputs(B, T, T, 3, 3, 5, 5, random), options, random);
      options.causal = true;
      check_packed(random_inputs(B, T, T, 6, 2, 17, 8, random), options, random);
      options.window_before = T / 2;
      options.dropout = 0.3, options.dropout_key = {1, 2, 3};
      options.key_mask = random_mask({B, T}, random), options.query_mask = random_mask({B, T}, random);
      check_packed(random_inputs(B, T, T, 4, 1, 3, 33, random), options, random);
      options.mask = random_normal({4, 1, T}, random);
      check_packed(random_inputs(B, T, T, 4, 2, 16, 9, random), options, random);
    }
  }

  TEST_CASE("a packed projection takes all options in any combination") {
    int checked = 0;
    for (std::uint64_t i = 0; checked < cases_here(random_cases(150)); ++i) {
      Generator random(test_seed(5000 + i));
      const AttentionCase c = random_case(random);
      if (c.in.T() != c.in.S()) continue;
      const std::string described = description(c);
      CAPTURE(i);
      CAPTURE(described);
      check_packed(c.in, c.options, random, i % 2 == 0 ? kNan : -kInfinity);
      ++checked;
    }
  }

  TEST_CASE("sequences of several lengths may stand in one packed projection") {
    Generator random(test_seed(30));
    AttentionOptions options;
    options.query_starts = integers({0, 3, 3, 40, 75}, {5});
    check_packed(random_inputs(1, 75, 75, 4, 2, 6, 5, random), options, random);
    options.causal = true;
    options.prefix_lengths = integers({1, 0, 20, 40}, {4});
    check_packed(random_inputs(1, 75, 75, 4, 2, 6, 5, random), options, random);
  }

  TEST_CASE("junk in what the masks leave out of a packed projection gets exactly zero gradient") {
    Generator random(test_seed(31));
    const AttentionInputs in = random_inputs(2, 35, 35, 4, 2, 6, 5, random);
    AttentionOptions options;
    options.causal = true;
    options.key_mask = options.query_mask = random_mask({2, 35}, random);
    const Tensor packed = pack(spoiled({in, options}, kNan).list());
    const Tensor seed = random_normal({2, 35, 4, 5}, random);
    const Tensor dx = run_op(packed_by(heads_of(in), options), {packed}, seed).gradients[0].to(Device::cpu());
    for (Index i = 0; i < dx.elements(); ++i) {
      if (std::isnan(packed.at(i))) REQUIRE(dx.at(i) == 0);
    }
  }

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
}
