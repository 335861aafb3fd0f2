#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/autograd/ops/attention_random.h>
#include <tapeformer/tests/autograd/ops/attention_rounding.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <omp.h>

#include <algorithm>

using namespace tapeformer;

namespace {

const int kCases = random_cases(300), kSecondOrderCases = random_cases(100), kLongCases = random_cases(40);

/// The gradients of a function of the gradients of the fused operation.
std::vector<Tensor> second_gradients(const AttentionInputs& in, const AttentionOptions& options,
                                     const Tensor& seed) {
  Tape tape;
  for (const Tensor& x : in.list()) tape.watch(x);
  const Tensor y = scaled_dot_product_attention(in.query, in.key, in.value, options);
  const std::vector<Tensor> first = tape.gradients(y, in.list(), seed, true);
  return tape.gradients(sum(first[0] * first[0]) + sum(first[1] * first[1]) + sum(first[2] * first[2]),
                        in.list());
}

}  // namespace

TEST_SUITE("autograd/ops/attention") {
  TEST_CASE("all options in any combination: both paths equal plain loops") {
    for (int i = 0; i < cases_here(kCases); ++i) {
      Generator random(static_cast<std::uint64_t>(1000 + i));
      const AttentionCase c = random_case(random);
      const std::string described = description(c);
      CAPTURE(i);
      CAPTURE(described);
      check_attention_paths(c.in, c.options, random);
    }
  }

  TEST_CASE("many blocks of keys, in one to three threads: the fused path equals plain operations") {
    const int threads_before = omp_get_max_threads();
    for (int i = 0; i < cases_here(kLongCases); ++i) {
      Generator random(static_cast<std::uint64_t>(3000 + i));
      const AttentionCase c = random_case(random, true);
      const std::string described = description(c);
      CAPTURE(i);
      CAPTURE(described);
      const Tensor seed = random_normal({c.in.B(), c.in.T(), c.in.H(), c.in.value.size(3)}, random);
      const OpResult expected = run_op(attention_by(composed_attention, c.options), c.in.list(), seed);
      for (const int threads : {1, 2, 3}) {
        CAPTURE(threads);
        omp_set_num_threads(threads);
        const Op fused = attention_by(scaled_dot_product_attention, c.options);
        CHECK(attention_error(run_op(fused, c.in.list(), seed), expected, 0.1) <= 1e-11);
      }
      omp_set_num_threads(threads_before);
    }
  }

  TEST_CASE("masked inputs may hold anything, change nothing, and get exactly zero gradient") {
    for (int i = 0; i < cases_here(kCases); ++i) {
      Generator random(static_cast<std::uint64_t>(1000 + i));
      const AttentionCase c = random_case(random);
      const std::string described = description(c);
      CAPTURE(i);
      CAPTURE(described);
      const double junk = any_of({0, 1, 2}, random) == 0 ? kNan : once_in(2, random) ? kInfinity : -3e38;
      CAPTURE(junk);
      const AttentionInputs bad = spoiled(c, junk);
      const Tensor seed = random_normal({c.in.B(), c.in.T(), c.in.H(), c.in.value.size(3)}, random);
      for (const AttentionFunction path : kAttentionPaths) {
        CAPTURE(path == composed_attention);
        for (const DType type : {DType::f64, DType::f32}) {
          const auto run = [&](const AttentionInputs& in) {
            return run_op(attention_by(path, c.options),
                          {in.query.to(type), in.key.to(type), in.value.to(type)}, seed);
          };
          const OpResult clean = run(c.in), got = run(bad);
          CHECK(attention_error(got, clean, 0.1) <= (type == DType::f64 ? 1e-13 : 1e-5));
          check_untouched(c, got.gradients);
        }
      }
    }
  }

  TEST_CASE("nor do second derivatives show what the masks leave out") {
    for (int i = 0; i < cases_here(kSecondOrderCases); ++i) {
      Generator random(static_cast<std::uint64_t>(1000 + i));
      const AttentionCase c = random_case(random);
      const std::string described = description(c);
      CAPTURE(i);
      CAPTURE(described);
      const AttentionInputs bad = spoiled(c, once_in(2, random) ? kNan : kInfinity);
      const Tensor seed = random_normal({c.in.B(), c.in.T(), c.in.H(), c.in.value.size(3)}, random);
      const std::vector<Tensor> clean = second_gradients(c.in, c.options, seed),
                                got = second_gradients(bad, c.options, seed);
      check_untouched(c, got);
      for (std::size_t k = 0; k < 3; ++k) {
        CHECK(absolute_error(got[k], clean[k]) <= 1e-12 * std::max(1.0, largest(clean[k])));
      }
    }
  }
}
