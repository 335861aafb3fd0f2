#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

using namespace tapeformer;

TEST_CASE("sum and norm, and their gradients, are those of the single steps to the last bit") {
  Generator random(test_seed(6));
  for (const Index n : {1, 16, 17, 64, 130}) {
    for (const double probability : {0.0, 0.3}) {
      for (const bool centred : {false, true}) {
        CAPTURE(n);
        CAPTURE(probability);
        CAPTURE(centred);
        const Tensor x = random_normal({37, n}, random, DType::f32),
                     branch = random_normal({37, n}, random, DType::f32);
        const Tensor weight = random_normal({n}, random, DType::f32),
                     bias = random_normal({n}, random, DType::f32);
        const DropoutKey key{5, 1, 9};
        // Both results are used, so that two gradients meet in the sum.
        const auto fused = [&](const auto& in) {
          const SumAndNorm both = centred
                                      ? add_layer_norm(in[0], in[1], in[2], in[3], 1e-5, {probability, key})
                                      : add_rms_norm(in[0], in[1], in[2], 1e-6, {probability, key});
          return concat({both.sum, both.y}, 0);
        };
        const auto apart = [&](const auto& in) {
          const Tensor sum = in[0] + dropout(in[1], probability, key);
          return concat({sum, centred ? layer_norm(sum, in[2], in[3]) : rms_norm(sum, in[2])}, 0);
        };
        const Tensor seed = random_normal({74, n}, random);
        const std::vector<Tensor> inputs{x, branch, weight, bias};
        const OpResult got = run_op(fused, inputs, seed), expected = run_op(apart, inputs, seed);
        CHECK(absolute_error(got.y, expected.y) == 0);
        for (std::size_t i = 0; i < 4; ++i)
          CHECK(absolute_error(got.gradients[i], expected.gradients[i]) == 0);
      }
    }
  }
}

TEST_CASE("gradients of both orders, of the sum, of the norm and of both") {
  Generator random(test_seed(7));
  const Tensor x = random_normal({3, 6}, random), branch = random_normal({3, 6}, random);
  const Tensor weight = random_normal({6}, random), bias = random_normal({6}, random);
  const BranchDropout dropped{0.25, {5, 1, 2}};
  using Inputs = std::vector<std::pair<std::string, Tensor>>;
  const Inputs all{{"x", x}, {"branch", branch}, {"weight", weight}, {"bias", bias}};
  const auto check = [](const char* name, const std::function<SumAndNorm()>& f, const Inputs& inputs) {
    const auto product = [&] {
      const SumAndNorm both = f();
      return both.sum * both.y;
    };
    check_both_orders(name, product, inputs);
  };
  check(
      "add_layer_norm", [&] { return add_layer_norm(x, branch, weight, bias, 1e-5, dropped); }, all);
  check("add_rms_norm", [&] { return add_rms_norm(x, branch, weight); }, {all[0], all[1], all[2]});
  check("add_layer_norm, a branch that is x", [&] { return add_layer_norm(x, x, weight, {}, 1e-5, dropped); },
        {all[0], all[2]});
  check_both_orders(
      "add_layer_norm", [&] { return add_layer_norm(x, branch, weight, bias).y; }, all);
  check_both_orders("add_rms_norm, no weight",
                    [&] { return pow(add_rms_norm(x, branch, {}, 1e-6, dropped).sum, 2); }, {all[0], all[1]});
}

TEST_CASE("everything dropped, nothing recorded, nothing in") {
  Generator random(test_seed(8));
  const Tensor x = random_normal({2, 8}, random), branch = random_normal({2, 8}, random);
  const SumAndNorm none = add_layer_norm(x, branch, {}, {}, 1e-5, {1, {1, 1, 1}});
  CHECK(absolute_error(none.sum, x) == 0);
  CHECK(absolute_error(none.y, layer_norm(x, {}, {})) == 0);
  CHECK(add_rms_norm(Tensor::zeros({0, 3}), Tensor::zeros({0, 3}), {}).y.shape() == Shape{0, 3});
  CHECK(message_of<ShapeError>([&] { add_layer_norm(x, Tensor::zeros({8}, DType::f64), {}, {}); }) ==
        "[add_layer_norm] x and branch must have one shape; got x=f64[2,8], branch=f64[8]");
  CHECK_THROWS_WITH_AS(add_rms_norm(x, branch, Tensor::zeros({4}, DType::f64)),
                       doctest::Contains("[add_rms_norm] weight and bias must have the size"), ShapeError);
  CHECK_THROWS_WITH_AS(add_layer_norm(x, branch, {}, {}, 1e-5, {-0.5, {}}),
                       doctest::Contains("probability must be in [0, 1]"), ShapeError);
}

TEST_CASE("a gradient with other holders is not changed") {
  Generator random(test_seed(9));
  const Tensor x = random_normal({2, 8}, random), branch = random_normal({2, 8}, random);
  Tape tape;
  tape.watch(x);
  const SumAndNorm both = add_layer_norm(x, branch, {}, {});
  const Tensor seed = random_normal({2, 8}, random), before = seed.clone();
  const Tensor dsum = tape.gradients(both.sum, {x}, seed)[0];
  CHECK(absolute_error(dsum, before) == 0);
  CHECK(absolute_error(seed, before) == 0);
  const Tensor product = both.sum * both.y;
  const std::vector<Tensor> kept = tape.gradients(sum(product), {x, both.sum}, {});
  CHECK(absolute_error(kept[1], both.y) == 0);  // the product's gradient, before the norm adds to it
  CHECK(absolute_error(kept[0], kept[1]) > 0);
}
