#include <tapeformer/tests/autograd/kernels/attention_forward_case.h>
#include <tapeformer/tests/emulator/in_order.h>
#include <tapeformer/tests/reference/random_cases.h>

using namespace tapeformer;

namespace {

const int kCases = random_cases(24), kSpoiledCases = random_cases(12);
constexpr const char* kPath = "tensor_cores";

/// As decoding has them: few queries, keys for several blocks, no dropout.
AttentionCase decoding_case(Generator& random) {
  AttentionCase c = random_case(random, true);
  while (c.in.H() > 6) c = random_case(random, true);
  const Index T =
      c.options.query_starts.defined() || c.options.mask.defined() ? 0 : any_of({1, 2, 7, 16}, random);
  const Index D = any_of({8, 16, 40, 64}, random), E = any_of({8, 24, 64, 136}, random);
  AttentionOptions& o = c.options;
  o.dropout = 0;
  if (T == 0) {  // other masks than random ones, which are as long as there were queries
    o.query_starts = o.key_starts = o.mask = o.prefix_lengths = o.key_lengths = Tensor();
  }
  o.query_mask = Tensor();
  const Index queries = T == 0 ? 5 : T;
  c.in = random_inputs(c.in.B(), queries, c.in.S(), c.in.H(), c.in.G(), D, E, random);
  if (once_in(2, random))
    o.mask = random_pair_mask({c.in.B(), c.in.H(), queries, c.in.S()}, once_in(2, random), random);
  if (once_in(3, random)) o.query_mask = random_row_mask({c.in.B(), queries}, random);
  return c;
}

AttentionCase simple_case(Index B, Index T, Index S, Index H, Index G, Index D, Index E, Generator& random) {
  return {random_inputs(B, T, S, H, G, D, E, random), {}};
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_split") {
  TEST_CASE("few queries, any options: the output and the sums it keeps are the CPU's in f64") {
    if (!has_gpu()) return;
    for (const DType type : {DType::bf16, DType::f32, DType::f64}) {
      CAPTURE(name_of(type));
      for (int i = 0; i < kCases; ++i) {
        CAPTURE(i);
        Generator random(static_cast<std::uint64_t>(400 + i));
        check_forward_path(kPath, decoding_case(random), random, type);
      }
    }
  }

  TEST_CASE("a latent that is key and value at once, of many heads, is loaded once") {
    if (!has_gpu()) return;
    for (const DType type : {DType::bf16, DType::f32}) {
      CAPTURE(name_of(type));
      for (const Index width : {40, 576}) {
        CAPTURE(width);
        Generator random(31);
        AttentionCase c = simple_case(2, 2, 200, 10, 1, width, width, random);
        c.in.value = c.in.key;
        c.options.causal = true;
        c.options.key_lengths = integers({200, 90}, {2});
        check_forward_path(kPath, c, random, type);
      }
    }
  }

  TEST_CASE("many parts, some of which see nothing") {
    if (!has_gpu()) return;
    for (const DType type : {DType::bf16, DType::f32}) {
      CAPTURE(name_of(type));
      Generator random(32);
      AttentionCase c = simple_case(2, 3, 1500, 2, 1, 16, 16, random);
      c.options.key_lengths = integers({1500, 70}, {2});
      c.options.causal = true;
      c.options.window_before = 400;
      check_forward_path(kPath, c, random, type);
      c.options.query_mask = booleans({1, 0, 1, 0, 0, 0}, {2, 3});
      check_forward_path(kPath, c, random, type);
    }
  }

  TEST_CASE("masked inputs may hold anything") {
    if (!has_gpu()) return;
    for (const DType type : {DType::bf16, DType::f32}) {
      for (const double junk : {kNan, kInfinity, -kInfinity}) {
        for (int i = 0; i < kSpoiledCases; ++i) {
          CAPTURE(i);
          Generator random(static_cast<std::uint64_t>(700 + i));
          const AttentionCase c = decoding_case(random);
          const std::string described = description(c);
          CAPTURE(described);
          REQUIRE(same_values(attention_by(kPath, spoiled(c, junk), c.options, type),
                              attention_by(kPath, c.in, c.options, type)));
        }
      }
    }
  }

  TEST_CASE("up to 16 queries of more than 128 keys without dropout are split, others not") {
    if (!has_gpu()) return;
    Generator random(33);
    const auto takes = [&](Index T, Index S, Index D, Index E, double dropout = 0, Index shift = 0) {
      const AttentionCase c = simple_case(1, T, S, 2, 1, D, E, random);
      AttentionOptions options;
      options.dropout = dropout;
      const Tensor plain = attention_by("plain", c.in, options, DType::f32, shift);
      const Tensor y = attention_by(kPath, c.in, options, DType::f32, shift);
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
    if (!has_gpu()) return;
    Generator random(34);
    AttentionCase c = simple_case(1, 3, 700, 4, 2, 40, 64, random);
    c.options.causal = true;
    c.options.key_mask = random_mask({1, 700}, random);
    for (const DType type : {DType::bf16, DType::f32}) {
      const Tensor first = attention_by(kPath, c.in, c.options, type);
      for (const std::uint64_t order : {0, 1, 2}) {
        const InOrder in(order);
        CHECK(same_values(attention_by(kPath, c.in, c.options, type), first));
      }
    }
  }
}
