#include <tapeformer/tests/autograd/kernels/modifiers_case.h>
#include <tapeformer/tests/autograd/ops/attention_search.h>
#include <tapeformer/tests/emulator/in_order.h>
#include <tapeformer/tests/reference/random_cases.h>

using namespace tapeformer;
using kernels::AttentionWeighting;
using kernels::ScoreFunction;

namespace {

const int kModifierCases = random_cases(90);

Modifiers random_modifiers(Generator& random) {
  Modifiers m;
  m.function = static_cast<ScoreFunction>(random.below(static_cast<Index>(ScoreFunction::count)));
  if (once_in(4, random)) m.weighting = AttentionWeighting::sigmoid;
  m.of_heads = once_in(2, random), m.has_relative = once_in(2, random);
  m.has_sinks = once_in(2, random) && m.weighting == AttentionWeighting::softmax;
  m.is_additive = once_in(4, random);
  return m;
}

/// The error of one tensor; of what theory cancels, as the gradients of the scores of a single key, by 1.
double error_of(const Tensor& got, const Tensor& exact) {
  const double error = absolute_error(got, exact), size = largest(exact);
  return error == 0 ? 0 : error / std::max(size, 1.0);
}

void check_exact(const ModifiedAttention& c, const ModifiedAttention& given, const Tensor& seed,
                 const Tensor& given_seed) {
  const NamedTensors expected = modified_oracle<double>(c, seed),
                     got = modified_by_kernels(given, given_seed, DType::f64);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(expected[i].first);
    REQUIRE(got[i].second.defined() == expected[i].second.defined());
    if (got[i].second.defined()) CHECK_BELOW(error_of(got[i].second, expected[i].second), 1e-11);
  }
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_modifiers") {
  TEST_CASE("random attention, with anything done to its scores, in f64") {
    for (int i = 0; i < kModifierCases; ++i) {
      Generator random(test_seed(static_cast<std::uint64_t>(i)));
      AttentionProblem problem = random_problem(random);
      limit_pairs(problem, 8000);
      problem.function = problem.relative = problem.sigmoid = problem.sinks = 0;  // drawn below
      const AttentionCase plain = case_of(problem);
      const std::string described = text_of(problem);
      CAPTURE(described);
      const ModifiedAttention c = modified(plain, random_modifiers(random), random, DType::f64);
      const Tensor seed = seed_of(c, random, DType::f64);
      ModifiedAttention given = c;
      Tensor given_seed = seed;
      if (problem.junk != 0) {
        const Touched real = touched(c);
        given.in = {with_junk(c.in.query, real.queries, problem), with_junk(c.in.key, real.keys, problem),
                    with_junk(c.in.value, real.keys, problem)};
        given_seed = with_junk(seed, real.queries, problem);
      }
      check_exact(c, given, seed, given_seed);
    }
  }

  TEST_CASE("many tiles of queries and keys, and more distances than a block has") {
    for (const bool of_heads : {false, true}) {
      CAPTURE(of_heads);
      for (const auto weighting : {AttentionWeighting::softmax, AttentionWeighting::sigmoid}) {
        Generator random(test_seed(41));
        AttentionCase plain = case_on_cpu(2, 70, 150, 2, 1, 5, 3, random);
        plain.options.causal = of_heads;
        plain.options.dropout = 0.25;
        plain.options.mask = host_normal({2, 1, 150}, random);
        Modifiers m;
        m.function = ScoreFunction::softcap, m.weighting = weighting, m.of_heads = of_heads;
        m.has_relative = true, m.has_sinks = weighting == AttentionWeighting::softmax;
        const ModifiedAttention c = modified(plain, m, random, DType::f64);
        const Tensor seed = seed_of(c, random, DType::f64);
        check_exact(c, c, seed, seed);
      }
    }
  }

  TEST_CASE("distances of a block that end with the first key of a tile") {
    Generator random(test_seed(48));
    for (const Index S : {192, 224}) {  // a block's 256 distances from 1 - S on; tiles of f32 and of f64
      AttentionCase plain = case_on_cpu(1, 1, S, 1, 1, 2, 2, random);
      plain.options.alignment = CausalAlignment::top_left;
      ModifiedAttention c = modified(plain, {}, random, DType::f64);
      c.reach = S - 1, c.relative = host_normal({1, 2 * c.reach + 1}, random);
      const Tensor seed = seed_of(c, random, DType::f64);
      check_exact(c, c, seed, seed);
    }
  }

  TEST_CASE("the gradient of an additive mask, broadcast along any axes") {
    for (Index repeated = 0; repeated < 16; ++repeated) {
      CAPTURE(repeated);
      Generator random(test_seed(static_cast<std::uint64_t>(repeated)));
      AttentionCase plain = case_on_cpu(2, 35, 40, 2, 2, 4, 4, random);
      plain.options.mask = random_pair_mask({2, 2, 35, 40}, true, repeated, random);
      const ModifiedAttention c = modified(plain, {}, random, DType::f64);
      const Tensor seed = seed_of(c, random, DType::f64);
      check_exact(c, c, seed, seed);
    }
  }

  TEST_CASE("each modifier matters") {
    Generator random(test_seed(42));
    const AttentionCase plain = case_on_cpu(1, 33, 40, 2, 2, 8, 8, random);
    const ModifiedAttention without = modified(plain, {}, random, DType::f64);
    const Tensor seed = seed_of(without, random, DType::f64);
    const NamedTensors before = modified_by_kernels(without, seed, DType::f64);
    for (const Modifiers& m : kEach) {
      CAPTURE(described(m));
      const NamedTensors after =
          modified_by_kernels(modified(plain, m, random, DType::f64), seed, DType::f64);
      for (std::size_t i = 0; i < 4; ++i) CHECK(relative_error(after[i].second, before[i].second) > 1e-3);
    }
  }

  TEST_CASE("gradients are added where they are to be") {
    Generator random(test_seed(47));
    AttentionCase plain = case_on_cpu(2, 20, 70, 2, 1, 8, 8, random);
    plain.options.mask = host_normal({2, 1, 70}, random);
    for (const bool is_whole : {false, true}) {  // the mask's gradient, by one block for each tile
      if (is_whole) plain.options.mask = host_normal({2, 2, 20, 70}, random);
      Modifiers m;
      m.function = ScoreFunction::softcap, m.has_relative = m.has_sinks = true;
      const ModifiedAttention c = modified(plain, m, random, DType::f64);
      const Tensor seed = seed_of(c, random, DType::f64);
      const NamedTensors once = modified_by_kernels(c, seed, DType::f64),
                         sums = modified_by_kernels(c, seed, DType::f64, 64);
      for (std::size_t i = 1; i < once.size(); ++i) {
        CAPTURE(once[i].first);
        const Tensor &x = once[i].second, &sum = sums[i].second;
        for (Index k = 0; x.defined() && k < x.elements(); ++k)
          REQUIRE_BELOW(std::abs(sum.at(k) - 64 - x.at(k)), 0x1p-52 * 2 * (64 + std::abs(x.at(k))));
      }
    }
  }

  TEST_CASE("the same bits, whatever the order of blocks and threads") {
    for (const DType type : {DType::f32, DType::bf16}) {
      Generator random(test_seed(43));
      AttentionCase plain = case_on_cpu(2, 70, 90, 2, 1, 16, 8, random);
      plain.options.mask = host_normal({90}, random);
      plain.options.dropout = 0.2;
      Modifiers m;
      m.function = ScoreFunction::softcap, m.has_relative = m.has_sinks = true;
      const ModifiedAttention c = modified(plain, m, random, type);
      const Tensor seed = seed_of(c, random, type);
      const NamedTensors first = modified_by_kernels(c, seed, type);
      for (const std::uint64_t order : {0, 7}) {
        const InOrder in(order);
        const NamedTensors again = modified_by_kernels(c, seed, type);
        for (std::size_t i = 0; i < first.size(); ++i) {
          CAPTURE(first[i].first);
          if (first[i].second.defined()) CHECK(absolute_error(again[i].second, first[i].second) == 0);
        }
      }
    }
  }

  TEST_CASE("no queries, no keys: gradients of zero") {
    for (const Index queries : {0, 3}) {
      Generator random(test_seed(44));
      AttentionCase plain = case_on_cpu(1, queries, queries == 0 ? 3 : 0, 2, 1, 4, 4, random);
      plain.options.mask = host_normal({1, 1}, random);
      for (const Modifiers& m : kEach) {
        const ModifiedAttention c = modified(plain, m, random, DType::f64);
        const Tensor seed = seed_of(c, random, DType::f64);
        check_exact(c, c, seed, seed);
      }
    }
  }
}
