#include <tapeformer/tests/autograd/kernels/attention_forward_case.h>
#include <tapeformer/tests/emulator/in_order.h>
#include <tapeformer/tests/reference/random_cases.h>

using namespace tapeformer;

namespace {

const int kLongForward = random_cases(6);
constexpr const char* kPath = "tensor_cores";

Index any_width(Generator& random) { return any_of({8, 16, 24, 32, 40, 64}, random); }

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_mma_forward") {
  TEST_CASE("any widths, of keys and of values, with masks and without") {
    const Index widths[][2] = {{8, 16},   {32, 32},   {32, 40},   {64, 48},  {64, 64},
                               {80, 128}, {128, 128}, {128, 136}, {256, 16}, {256, 256}};
    for (const auto& width : widths) {
      CAPTURE(width[0]);
      for (const bool has_masks : {false, true}) {
        CAPTURE(has_masks);
        Generator random(test_seed(static_cast<std::uint64_t>(1000 * width[0] + width[1])));
        AttentionCase c = simple_case(1, 70, 131, 2, 1, width[0], width[1], random);
        c.options.causal = true;
        if (has_masks) {
          c.options.mask = host_normal({70, 131}, random);
          c.options.dropout = 0.25;
        }
        check_forward_path(kPath, c, random);
      }
    }
  }

  TEST_CASE("many tiles of queries and keys, any options") {
    for (int i = 0; i < kLongForward; ++i) {
      CAPTURE(i);
      Generator random(test_seed(static_cast<std::uint64_t>(500 + i)));
      AttentionCase c = random_case(random, true);
      while (c.in.H() > 3) c = random_case(random, true);
      const Index D = any_width(random), E = any_width(random);
      check_forward_path(kPath, with_widths(c, D, E, random), random);
    }
  }

  TEST_CASE("packed sequences of any lengths, and what nobody sees between them") {
    Generator random(test_seed(22));
    AttentionCase c = simple_case(1, 200, 210, 2, 1, 16, 16, random);
    c.options.query_starts = integers({0, 30, 30, 170, 200}, {4 + 1});
    c.options.key_starts = integers({0, 33, 80, 180, 210}, {4 + 1});
    c.options.causal = true;
    const Tensor clean = check_forward_path(kPath, c, random).y;
    CHECK(same_values(attention_by(kPath, spoiled(c, kNan), c.options), clean));
  }

  TEST_CASE("large scores neither overflow nor vanish") {
    Generator random(test_seed(23));
    AttentionCase c = simple_case(1, 20, 70, 1, 1, 16, 16, random);
    for (const double scale : {30.0, -30.0}) {
      c.options.scale = scale;
      check_output(attention_by(kPath, c.in, c.options), as_type(c.in, DType::bf16), c.options);
    }
  }

  TEST_CASE("heads side by side in one projection are read where they lie") {
    Generator random(test_seed(24));
    const AttentionInputs in = as_type(random_inputs(2, 70, 70, 4, 2, 32, 16, random), DType::bf16);
    AttentionOptions options;
    options.causal = true;
    const AttentionBy by(kPath);
    const Tensor packed = on_gpu(pack(on_cpu(in).list()).to(DType::bf16));
    check_output(readable(packed_attention(packed, heads_of(in), options)), in, options);
  }

  TEST_CASE("aligned rows of up to 256 numbers go through tensor cores, others through the plain kernels") {
    Generator random(test_seed(25));
    const auto takes = [&](Index D, Index E, Index shift) {
      const AttentionCase c = simple_case(1, 40, 70, 1, 1, D, E, random);
      const Tensor plain = attention_by("plain", c.in, {}, DType::bf16, shift);
      const Tensor y = attention_by(kPath, c.in, {}, DType::bf16, shift);
      check_output(y, as_type(c.in, DType::bf16), {});
      return !same_values(y, plain);
    };
    CHECK(takes(64, 64, 0));
    CHECK(takes(256, 8, 0));
    CHECK(takes(64, 64, 8));
    CHECK_FALSE(takes(64, 64, 1));
    CHECK_FALSE(takes(64, 64, 4));
    CHECK_FALSE(takes(64, 60, 0));
    CHECK_FALSE(takes(60, 64, 0));
    CHECK_FALSE(takes(264, 64, 0));
    CHECK_FALSE(takes(64, 264, 0));
  }

  TEST_CASE("the same bits, run after run and whatever the order of blocks and threads") {
    Generator random(test_seed(26));
    AttentionCase c = simple_case(1, 140, 200, 2, 1, 40, 64, random);
    for (const bool has_masks : {false, true}) {
      c.options.causal = true;
      if (has_masks) c.options.dropout = 0.2, c.options.key_mask = random_mask({1, 200}, random);
      const Tensor first = attention_by(kPath, c.in, c.options);
      for (const std::uint64_t order : {0, 1, 2}) {
        const InOrder in(order);
        CHECK(same_values(attention_by(kPath, c.in, c.options), first));
      }
    }
  }

  TEST_CASE("no queries, no keys") {
    Generator random(test_seed(27));
    const AttentionCase none = simple_case(2, 0, 5, 2, 1, 16, 16, random);
    CHECK(attention_by(kPath, none.in, {}).elements() == 0);
    const AttentionCase blind = simple_case(2, 5, 0, 2, 1, 16, 16, random);
    CHECK(same_values(attention_by(kPath, blind.in, {}),
                      Tensor::zeros({2, 5, 2, 16}, DType::f64, Device::cpu())));
  }
}
