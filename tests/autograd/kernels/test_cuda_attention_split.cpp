#include <tapeformer/tests/autograd/kernels/attention_forward_case.h>
#include <tapeformer/tests/emulator/in_order.h>

using namespace tapeformer;

namespace {

constexpr const char* kSplitPath = "tensor_cores";

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_split") {
  TEST_CASE("a latent that is key and value at once, of many heads, is loaded once") {
    for (const DType type : {DType::bf16, DType::f32}) {
      CAPTURE(name_of(type));
      for (const Index width : {40, 576}) {
        CAPTURE(width);
        Generator random(test_seed(31));
        AttentionCase c = simple_case(2, 2, 200, 10, 1, width, width, random);
        c.in.value = c.in.key;
        c.options.causal = true;
        c.options.key_lengths = integers({200, 90}, {2});
        check_forward_path(kSplitPath, c, random, type);
      }
    }
  }

  TEST_CASE("many parts, some of which see nothing") {
    for (const DType type : {DType::bf16, DType::f32}) {
      CAPTURE(name_of(type));
      Generator random(test_seed(32));
      AttentionCase c = simple_case(2, 3, 1500, 2, 1, 16, 16, random);
      c.options.key_lengths = integers({1500, 70}, {2});
      c.options.causal = true;
      c.options.window_before = 400;
      check_forward_path(kSplitPath, c, random, type);
      c.options.query_mask = booleans({1, 0, 1, 0, 0, 0}, {2, 3});
      check_forward_path(kSplitPath, c, random, type);
    }
  }

  TEST_CASE("up to 16 queries of more than 128 keys without dropout are split, others not") {
    Generator random(test_seed(33));
    const auto takes = [&](Index T, Index S, Index D, Index E, double dropout = 0, Index shift = 0) {
      const AttentionCase c = simple_case(1, T, S, 2, 1, D, E, random);
      AttentionOptions options;
      options.dropout = dropout;
      const Tensor plain = attention_by("plain", c.in, options, DType::f32, shift);
      const Tensor y = attention_by(kSplitPath, c.in, options, DType::f32, shift);
      check_output(y, as_type(c.in, DType::f32), options, DType::f32);
      return !same_values(y, plain);
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

  TEST_CASE("the same bits, run after run and whatever the order of blocks and threads") {
    Generator random(test_seed(34));
    AttentionCase c = simple_case(1, 3, 700, 4, 2, 40, 64, random);
    c.options.causal = true;
    c.options.key_mask = random_mask({1, 700}, random);
    for (const DType type : {DType::bf16, DType::f32}) {
      const Tensor first = attention_by(kSplitPath, c.in, c.options, type);
      for (const std::uint64_t order : {0, 1, 2}) {
        const InOrder in(order);
        CHECK(same_values(attention_by(kSplitPath, c.in, c.options, type), first));
      }
    }
  }
}
