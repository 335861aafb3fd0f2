#include <tapeformer/tests/autograd/kernels/attention_path_case.h>
#include <tapeformer/tests/reference/sanitized.h>

using namespace tapeformer;

constexpr DType kSplitTypes[] = {DType::bf16, DType::f32};

TEST_CASE("a latent that is key and value at once, of many heads, is loaded once, with the same result") {
  for (const DType type : kSplitTypes) {
    for (const Index width : {40, 576}) {
      if (width == 576 && type == DType::f32 && is_sanitized()) continue;
      CAPTURE(width);
      Generator random(test_seed(31));
      AttentionCase c = simple_case(2, 2, 200, 10, 1, width, width, random);
      c.options.causal = true;
      c.options.key_lengths = integers({200, 90}, {2});
      c.in.value = c.in.key.clone();
      check_path(gpu_path("split", type), c, random);
      const Tensor expected = attention_by("tensor_cores", c.in, c.options, type);
      c.in.value = c.in.key;
      const double most = type == DType::bf16 ? 0x1p-7 : 1e-5;  // widths of 576 fit only when shared
      CHECK_BELOW(relative_error(attention_by("tensor_cores", c.in, c.options, type), expected), most);
    }
  }
}

TEST_CASE("many parts, some of which see nothing") {
  for (const DType type : kSplitTypes) {
    Generator random(test_seed(32));
    AttentionCase c = simple_case(2, 3, 1500, 2, 1, 16, 16, random);
    c.options.key_lengths = integers({1500, 70}, {2});
    c.options.causal = true;
    c.options.window_before = 400;
    check_path(gpu_path("split", type), c, random);
    c.options.query_mask = booleans({1, 0, 1, 0, 0, 0}, {2, 3});
    check_path(gpu_path("split", type), c, random);
  }
}

TEST_CASE("up to 16 queries of more than 128 keys without dropout are split, others not") {
  Generator random(test_seed(33));
  const auto takes = [&](Index T, Index S, Index D, Index E, double dropout = 0, Index shift = 0) {
    const AttentionCase c = simple_case(1, T, S, 2, 1, D, E, random);
    AttentionOptions options;
    options.dropout = dropout;
    return !same_values(attention_by("tensor_cores", c.in, options, DType::f32, shift),
                        attention_by("plain", c.in, options, DType::f32, shift));
  };
  CHECK(takes(1, 129, 16, 16));
  CHECK(takes(16, 300, 16, 16));
  CHECK(takes(2, 300, 16, 20));
  CHECK_FALSE(takes(17, 300, 16, 16));
  CHECK_FALSE(takes(1, 128, 16, 16));
  CHECK_FALSE(takes(1, 300, 15, 16));
  CHECK_FALSE(takes(1, 300, 16, 18));
  CHECK_FALSE(takes(1, 300, 16, 644));
  CHECK_FALSE(takes(1, 300, 16, 16, 0.1));
  CHECK_FALSE(takes(1, 300, 16, 16, 0, 1));
}
