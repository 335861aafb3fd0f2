#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/autograd/ops/additive_case.h>
#include <tapeformer/tests/reference/random_cases.h>
#include <tapeformer/tests/reference/rounding.h>

#include <nlohmann/json.hpp>

#include <algorithm>

using namespace tapeformer;

namespace {

const int kCases = random_cases(120);

using Function = AdditiveFunction;
constexpr Function kPaths[] = {additive_attention, composed_additive_attention};

Tensor random_weight(const AttentionInputs& in, Generator& random) {
  return random_normal({in.H(), in.query.size(3)}, random);
}

}  // namespace

TEST_CASE("one query worked by hand: scores ln 3 and 0 give weights 3/4 and 1/4") {
  // tanh(q + k) = (1/2, 0) for the first key and (0, 0) for the second; weight (2 ln 3, 7).
  const double half = std::atanh(0.5), w = 2 * std::log(3.0);
  const std::vector<Tensor> in{values({1, -2}, {1, 1, 1, 2}), values({half - 1, 2, -1, 2}, {1, 2, 1, 2}),
                               values({4, 8}, {1, 2, 1, 1}), values({w, 7}, {1, 2})};
  Tensor weights;
  AttentionOptions options;
  options.weights = &weights;
  additive_attention(in[0], in[1], in[2], in[3], options);
  CHECK_BELOW(relative_error(weights, values({0.75, 0.25}, {1, 1, 1, 2})), kFewRoundings);
  for (const Function path : kPaths) {
    const OpResult got = run_op(additive_by(path, {}), in, values({1}, {1, 1, 1, 1}));
    CHECK_BELOW(deviation(got.y.item(), 5), kFewRoundings);
    // dscores = w (v - 5) = (-3/4, 3/4); 1 - u^2 = (3/4, 1) and (1, 1)
    // The sums of terms as large as 3/4 7, which cancel.
    CHECK_BELOW(absolute_error(got.gradients[0], values({0.75 * (1 - 0.75) * w, 0}, {1, 1, 1, 2})), 1e-14);
    CHECK_BELOW(relative_error(got.gradients[1],
                               values({-0.75 * 0.75 * w, -0.75 * 7, 0.75 * w, 0.75 * 7}, {1, 2, 1, 2})),
                1e-14);
    CHECK_BELOW(relative_error(got.gradients[2], values({0.75, 0.25}, {1, 2, 1, 1})), kFewRoundings);
    CHECK_BELOW(relative_error(got.gradients[3], values({-0.375, 0}, {1, 2})), 1e-14);
  }
}

TEST_CASE("random attention: additive scores, masked values may hold anything") {
  const int cases = cases_here(kCases);
  for (const DType type : {DType::f64, DType::f32}) {
    const auto path = [&](const char* name, Function function) {
      return additive_path(name + std::string(" ") + name_of(type), type, default_device(), function);
    };
    search(path("additive", additive_attention), cases);
    search(path("composed additive", composed_additive_attention), cases);
  }
}

TEST_CASE("saved memory grows as the lengths do; the composed path saves the hidden layer") {
  const AttentionOptions causal(causal_masks());
  const auto saved = [&](Function path, Index T, const AttentionOptions& options) {
    Generator random(test_seed(7));
    const AttentionInputs in = random_inputs(1, T, T, 2, 1, 8, 8, random);
    const Tensor weight = random_weight(in, random);
    Tape tape;
    tape.watch(in.query);
    const Tensor y = path(in.query, in.key, in.value, weight, options);
    return tape.memory().saved_bytes;
  };
  const auto fused = saved(additive_attention, 64, causal);
  // query, key, value and y: 8 (2 + 1 + 1 + 2) numbers a position; 2 sums; the ranges; and the weight.
  CHECK(fused == 64 * (48 + 2) * 8 + 64 * 2 * 4 + 16 * 8);
  CHECK(saved(additive_attention, 128, causal) - 16 * 8 == 2 * (fused - 16 * 8));
  CHECK(saved(composed_additive_attention, 128, causal) > 128 * 128 * 2 * 8 * 8);
  AttentionOptions masked = causal;
  masked.key_mask = Tensor::full({1, 64}, 1, DType::boolean);
  masked.mask = Tensor::full({64, 64}, 1, DType::boolean);
  CHECK(saved(additive_attention, 64, masked) == fused + 64 + 64 * 64);
}

TEST_CASE("nothing in, nothing out; no keys give zeros; no hidden units give the mean") {
  Generator random(test_seed(9));
  const auto run = [&](Index B, Index T, Index S, Index D) {
    const AttentionInputs in = random_inputs(B, T, S, 2, 2, D, 5, random);
    const Tensor weight = random_weight(in, random), dy = random_normal({B, T, 2, 5}, random);
    const OpResult got = run_op(additive_by(additive_attention, {}), joined(in.list(), {weight}), dy);
    for (const Tensor& dx : got.gradients) {
      for (Index i = 0; i < dx.elements(); ++i) REQUIRE(std::isfinite(dx.at(i)));
    }
    return std::pair{got.y, mean(in.value, {1}, true)};
  };
  CHECK(run(0, 3, 4, 3).first.shape() == Shape{0, 3, 2, 5});
  CHECK(run(2, 0, 4, 3).first.shape() == Shape{2, 0, 2, 5});
  CHECK(largest(run(1, 2, 0, 3).first) == 0);
  const auto [y, average] = run(2, 1, 4, 0);
  CHECK_BELOW(relative_error(y, average), 1e-14);
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(10));
  const AttentionInputs in = random_inputs(2, 3, 5, 4, 2, 4, 3, random);
  const Tensor weight = random_weight(in, random);
  const auto check = [&](const char* name, const AttentionOptions& options) {
    check_both_orders(name, [&] { return additive_attention(in.query, in.key, in.value, weight, options); },
                      {{"query", in.query}, {"key", in.key}, {"value", in.value}, {"weight", weight}});
  };
  AttentionOptions options;
  check("additive attention", options);
  options.causal = true, options.window_before = 2;
  check("additive attention, causal window", options);
  options = {};
  options.key_mask = booleans({1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, {2, 5});
  options.query_mask = booleans({1, 1, 1, 1, 0, 1}, {2, 3});
  options.mask = random_normal({4, 3, 5}, random);
  options.dropout = 0.3, options.dropout_key = {1, 2, 3};
  check("additive attention, masks and dropout", options);
}

TEST_CASE("golden values") {
  const Golden golden("additive");
  for (const char* name : {"op_plain", "op_causal", "op_mask", "op_padding"}) {
    const std::vector<std::string> arguments = golden.names(name, "in.");
    const auto has = [&](const char* argument) {
      return std::count(arguments.begin(), arguments.end(), argument) > 0;
    };
    check_golden(golden, name, {"query", "key", "value", "weight"}, [&](const std::vector<Tensor>& in) {
      AttentionOptions options;
      options.causal = golden.options(name).value("causal", false);
      if (has("mask")) options.mask = golden.tensor(name, "in.mask", in[0].dtype());
      if (has("key_mask")) options.key_mask = golden.tensor(name, "in.key_mask");
      return additive_attention(in[0], in[1], in[2], in[3], options);
    });
  }
}

TEST_CASE("inputs that do not fit are refused by name") {
  const Tensor query = Tensor::zeros({2, 3, 4, 5}), key = Tensor::zeros({2, 6, 2, 5});
  const auto says = [&](const Tensor& weight, double scale) {
    AttentionOptions options;
    options.scale = scale;
    return message_of<ShapeError>([&] { additive_attention(query, key, key, weight, options); });
  };
  CHECK(says(Tensor::zeros({4, 6}), 0) ==
        "[additive_attention] weight must be [H, D]; got weight=f32[4,6], query=f32[2,3,4,5]; try one row "
        "for every head of the query");
  CHECK(says(Tensor::zeros({4, 5}), 2).find("additive scores have no scale; got scale=2;") !=
        std::string::npos);
  AttentionOptions blocks;
  blocks.block_size = 2;
  CHECK_THROWS_WITH_AS(
      additive_attention(query, key, key, Tensor::zeros({4, 5}), blocks),
      "[additive_attention] additive attention has no blocks of keys; got block_size=2; try 0 for all keys",
      ShapeError);
  CHECK_THROWS_WITH_AS(additive_attention(query, Tensor::zeros({2, 6, 3, 5}), Tensor::zeros({2, 6, 3, 5}),
                                          Tensor::zeros({4, 5})),
                       doctest::Contains("[additive_attention] H must be a multiple of G"), ShapeError);
}
