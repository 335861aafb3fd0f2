#include <tapeformer/tests/autograd/ops/attention_rounding.h>

using namespace tapeformer;

namespace {

Index saved_bytes(Index T, const AttentionOptions& options) {
  Tape tape;
  const Tensor query = Tensor::zeros({1, T, 2, 16}), key = Tensor::zeros({1, T, 1, 16});
  for (const Tensor& x : {query, key}) tape.watch(x);
  const Tensor y = scaled_dot_product_attention(query, key, key, options);
  return tape.memory().saved_bytes;
}

}  // namespace

TEST_CASE("gradients of both orders, through the composed fallback") {
  Generator random(test_seed(12));
  const auto check = [&](const char* name, const AttentionInputs& in, const AttentionOptions& options) {
    check_both_orders(name, [&] { return scaled_dot_product_attention(in.query, in.key, in.value, options); },
                      {{"query", in.query}, {"key", in.key}, {"value", in.value}});
  };
  const AttentionInputs in = random_inputs(2, 3, 5, 4, 2, 3, 2, random);
  AttentionOptions options;
  check("attention", in, options);
  options.causal = true;
  options.prefix_lengths = integers({0, 4}, {2});
  check("attention, prefix", in, options);
  options.window_before = 1;
  options.key_lengths = integers({5, 3}, {2});
  check("attention, window and lengths", in, options);
  AttentionOptions padded;
  padded.key_mask = booleans({1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, {2, 5});
  padded.query_mask = booleans({1, 1, 1, 1, 0, 1}, {2, 3});
  padded.dropout = 0.3, padded.dropout_key = {1, 2, 3};
  check("attention, padding and dropout", in, padded);
  AttentionOptions packed;
  packed.query_starts = integers({0, 2, 6}, {3}), packed.key_starts = integers({0, 4, 7}, {3});
  packed.causal = true;
  packed.mask = random_normal({4, 1, 7}, random);
  check("attention, packed sequences", random_inputs(1, 6, 7, 4, 2, 3, 2, random), packed);
}

TEST_CASE("saved memory grows with the length, not with its square") {
  AttentionOptions options;
  const Index per_token = 4 * (5 * 16 + 2);  // query and y of two heads, key and value in one, log_sum
  const Index longest = default_device().is_cuda() ? 512 : 4096;  // an emulator takes seconds
  for (const Index T : {Index{64}, longest}) CHECK(saved_bytes(T, options) == T * per_token);
  options.causal = true;
  options.window_before = 3;
  options.dropout = 0.1;
  for (const Index T : {Index{64}, longest}) CHECK(saved_bytes(T, options) == T * (per_token + 2 * 4));
  AttentionOptions modified;
  modified.score_function = ScoreFunction::softcap;
  modified.score_parameter = Tensor::full({2}, 3, DType::f32), modified.sinks = Tensor::zeros({2});
  for (const Index T : {64, 128}) {
    modified.relative_bias = Tensor::zeros({2, 2 * T - 1});
    // Two numbers of each head's parameters, and 2 T - 1 of its bias; i32 positions.
    CHECK(saved_bytes(T, modified) == T * (per_token + 4) + 4 * (2 + 2 + 2 * (2 * T - 1)));
  }
}
