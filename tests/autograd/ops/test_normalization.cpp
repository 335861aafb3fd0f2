#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/formulas.h>
#include <tapeformer/tests/reference/rounding.h>

using namespace tapeformer;

TEST_CASE("rows worked by hand") {
  // mean 3, variance 4
  const Tensor y = layer_norm(values({1, 5, 1, 5}, {1, 4}), values({1, 2, 3, 4}), values({0, 0, 1, 1}), 0);
  CHECK_BELOW(relative_error(y, values({-1, 2, -2, 5}, {1, 4})), kFewRoundings);
  // mean of squares 16
  CHECK_BELOW(relative_error(rms_norm(values({4, -4}, {1, 2}), values({1, 3}), 0), values({1, -3}, {1, 2})),
              kFewRoundings);
  CHECK_BELOW(relative_error(rms_norm(values({3, 3}, {1, 2}), {}, 7), values({0.75, 0.75}, {1, 2})),
              kFewRoundings);
}

TEST_CASE("both norms equal the definition at every width and number of rows") {
  Generator random(test_seed(1));
  for (const Index n : {5, 15, 16, 17, 31, 32, 33, 257}) {
    for (const Index rows : {1, 3, 65, 300}) {
      CAPTURE(n);
      CAPTURE(rows);
      const Tensor x = random_normal({rows, n}, random), weight = random_normal({n}, random);
      const Tensor bias = random_normal({n}, random), seed = random_normal({rows, n}, random);
      check_op([](const auto& in) { return layer_norm(in[0], in[1], in[2]); }, {x, weight, bias}, seed,
               norm_formula(x, weight, bias, seed, true, 1e-5));
      OpResult rms = norm_formula(x, weight, Tensor::zeros({n}, DType::f64), seed, false, 1e-6);
      check_op([](const auto& in) { return rms_norm(in[0], in[1]); }, {x, weight}, seed, rms);
    }
  }
}

TEST_CASE("a missing weight counts as one, a missing bias as zero") {
  Generator random(test_seed(2));
  const Tensor x = random_normal({5, 19}, random), seed = random_normal({5, 19}, random);
  const Tensor one = Tensor::full({19}, 1, DType::f64), zero = Tensor::zeros({19}, DType::f64);
  const Tensor weight = random_normal({19}, random), bias = random_normal({19}, random);
  check_op([](const auto& in) { return layer_norm(in[0], {}, {}); }, {x}, seed,
           norm_formula(x, one, zero, seed, true, 1e-5));
  check_op([](const auto& in) { return layer_norm(in[0], in[1], {}); }, {x, weight}, seed,
           norm_formula(x, weight, zero, seed, true, 1e-5));
  const OpResult biased = norm_formula(x, one, bias, seed, true, 1e-5);
  check_op([](const auto& in) { return layer_norm(in[0], {}, in[1]); }, {x, bias}, seed,
           {biased.y, {biased.gradients[0], biased.gradients[2]}});
  check_op([](const auto& in) { return rms_norm(in[0], {}); }, {x}, seed,
           norm_formula(x, one, zero, seed, false, 1e-6));
}

TEST_CASE("a large mean does not spoil the variance") {
  // The one-pass formula, mean of squares less square of mean, would lose every digit in f32.
  const Tensor x = values({4096, 4097, 4098, 4099}, {1, 4}).to(DType::f32);
  const Tensor expected = layer_norm(values({0, 1, 2, 3}, {1, 4}), {}, {});
  CHECK_BELOW(relative_error(layer_norm(x, {}, {}), expected), 1e-6);
}

TEST_CASE("a row of one element has no gradient, to the last bit") {
  Generator random(test_seed(11));
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor x = random_normal({257, 1}, random, type), weight = random_normal({1}, random, type),
                 bias = random_normal({1}, random, type), seed = random_normal({257, 1}, random, type);
    const OpResult got =
        run_op([](const auto& in) { return layer_norm(in[0], in[1], in[2]); }, {x, weight, bias}, seed);
    CHECK(absolute_error(got.gradients[0], Tensor::zeros({257, 1}, type)) == 0);
    CHECK(absolute_error(got.gradients[1], Tensor::zeros({1}, type)) == 0);
  }
}

TEST_CASE("nothing in: empty y, and weights without gradient get zeros") {
  const OpResult got = run_op([](const auto& in) { return layer_norm(in[0], in[1], in[2]); },
                              {Tensor::zeros({0, 3}, DType::f64), values({1, 1, 1}), values({0, 0, 0})},
                              Tensor::zeros({0, 3}, DType::f64));
  CHECK(got.y.shape() == Shape{0, 3});
  CHECK(got.gradients[1].to_vector<double>() == std::vector<double>{0, 0, 0});
  CHECK(got.gradients[2].to_vector<double>() == std::vector<double>{0, 0, 0});
  CHECK(layer_norm(Tensor::zeros({3, 0}), {}, {}).shape() == Shape{3, 0});
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(5));
  const Tensor x = random_normal({3, 2, 5}, random), weight = random_normal({5}, random);
  const Tensor bias = random_normal({5}, random);
  check_both_orders("layer_norm", [&] { return layer_norm(x, weight, bias); },
                    {{"x", x}, {"weight", weight}, {"bias", bias}});
  check_both_orders("layer_norm, no weights", [&] { return layer_norm(x, {}, {}); }, {{"x", x}});
  check_both_orders("rms_norm", [&] { return rms_norm(x, weight); }, {{"x", x}, {"weight", weight}});
  check_both_orders("rms_norm, no weights", [&] { return rms_norm(x, {}); }, {{"x", x}});
  const Tensor wide = random_normal({2, 33}, random), weights = random_normal({33}, random);
  check_both_orders("layer_norm", [&] { return layer_norm(wide, weights, weights); },
                    {{"x", wide}, {"weight", weights}});
}

TEST_CASE("heads in a packed projection are normed apart, and the rest of a row is copied") {
  Generator random(test_seed(6));
  for (const Index rows : {1, 70, 300}) {
    for (const Index n : {4, 17, 32}) {
      for (const Index rest : {0, 3, 40}) {
        CAPTURE(rows);
        CAPTURE(n);
        CAPTURE(rest);
        const Index queries = 3, keys = 2, N = 5 * n + rest;
        const Tensor x = random_normal({rows, N}, random), seed = random_normal({rows, N}, random),
                     zero = Tensor::zeros({n}, DType::f64);
        const std::vector<Tensor> weights = {random_normal({n}, random), random_normal({n}, random)};
        TensorList y, dx;
        std::vector<Tensor> dweights = {zero, zero};
        for (Index head = 0; head < queries + keys; ++head) {
          const std::size_t which = head < queries ? 0 : 1;
          const OpResult own = norm_formula(slice(x, 1, head * n, n), weights[which], zero,
                                            slice(seed, 1, head * n, n), false, 1e-6);
          y.push_back(own.y);
          dx.push_back(own.gradients[0]);
          dweights[which] = dweights[which] + own.gradients[1];
        }
        y.push_back(slice(x, 1, 5 * n, rest));
        dx.push_back(slice(seed, 1, 5 * n, rest));
        const OpResult expected{concat(y, 1), {concat(dx, 1), dweights[0], dweights[1]}};
        check_op([](const auto& in) { return packed_head_norms(in[0], 3, 2, in[1], in[2]); },
                 {x, weights[0], weights[1]}, seed, expected);
      }
    }
  }
  const Tensor x = random_normal({2, 3, 11}, random), query = random_normal({3}, random),
               key = random_normal({3}, random);
  check_both_orders("packed_head_norms", [&] { return packed_head_norms(x, 2, 1, query, key) + x; },
                    {{"x", x}, {"query_weight", query}, {"key_weight", key}});
  CHECK(message_of<ShapeError>([&] { packed_head_norms(x, 3, 1, query, key); })
            .find("[packed_head_norms] rows must begin with heads of the weights' size; got x=f64[2,3,11], "
                  "queries=3, keys=1") == 0);
  CHECK_THROWS_WITH_AS(packed_head_norms(x, Index{1} << 62, 1, query, key),
                       doctest::Contains("rows must begin with heads"), ShapeError);
}

TEST_CASE("golden values") {
  const Golden golden("ops");
  check_golden(golden, "layer_norm", {"x", "weight", "bias"},
               [](const auto& in) { return layer_norm(in[0], in[1], in[2], 1e-5); });
  check_golden(golden, "rms_norm", {"x", "weight"},
               [](const auto& in) { return rms_norm(in[0], in[1], 1e-6); });
}

TEST_CASE("weights of another size are refused by name") {
  CHECK(message_of<ShapeError>([] {
          layer_norm(Tensor::zeros({2, 3}), Tensor::zeros({4}), {});
        })
            .find("[layer_norm] weight and bias must have the size of x's last axis; got x=f32[2,3], "
                  "weight=f32[4]") == 0);
  CHECK_THROWS_WITH_AS(rms_norm(Tensor::zeros({2, 3}), Tensor::zeros({1, 3})),
                       doctest::Contains("[rms_norm] weight"), ShapeError);
  CHECK(message_of<DTypeError>([] {
          rms_norm(Tensor::zeros({2, 3}), Tensor::zeros({3}, DType::f64));
        }).find("[rms_norm] all operands must have one type; got f32[2,3] and f64[3]") == 0);
}
