#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/autograd/ops/attention_search.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <algorithm>

using namespace tapeformer;

namespace {

const int kGridCases = random_cases(300), kSecondOrderCases = random_cases(100),
          kLongCases = random_cases(40);

/// Queries, keys and values side by side in one projection.
Tensor packed(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  const AttentionInputs in{query, key, value};
  return packed_attention(pack(in.list()), heads_of(in), options);
}

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

TEST_CASE("random attention: tiled, composed and packed, masked values may hold anything") {
  const int cases = cases_here(kGridCases);
  for (const DType type : {DType::f64, DType::f32}) {
    const auto path = [&](const char* name, AttentionFunction function) {
      return path_by(name + std::string(" ") + name_of(type), type, default_device(), function);
    };
    search(path("tiled", scaled_dot_product_attention), cases);
    search(path("long", scaled_dot_product_attention), cases_here(kLongCases), true);
    search(path("composed", composed_attention), cases);
    AttentionPath in_one = path("packed", packed);
    in_one.fit = [](AttentionProblem& p) { p.keys = p.queries; };
    search(in_one, cases);
  }
}

TEST_CASE("masked values do not affect second derivatives") {
  for (int i = 0; i < cases_here(kSecondOrderCases); ++i) {
    Generator random(test_seed(static_cast<std::uint64_t>(1000 + i)));
    AttentionProblem problem = random_problem(random);
    problem.junk = random.below(2) + 1;  // NaN or infinite
    const AttentionCase c = case_of(problem);
    const std::string described = text_of(problem);
    CAPTURE(described);
    const AttentionInputs bad = with_junk(c, problem);
    const Tensor seed = random_normal({c.in.B(), c.in.T(), c.in.H(), c.in.value.size(3)}, random);
    const std::vector<Tensor> clean = second_gradients(c.in, c.options, seed),
                              got = second_gradients(bad, c.options, seed);
    check_untouched(c, got);
    for (std::size_t k = 0; k < 3; ++k) {
      CHECK_BELOW(absolute_error(got[k], clean[k]), 1e-12 * std::max(1.0, largest(clean[k])));
    }
  }
}
