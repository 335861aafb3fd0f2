#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/formulas.h>
#include <tapeformer/tests/reference/rounding.h>

#include <cmath>
#include <vector>

using namespace tapeformer;

namespace {

/// Wherever the largest element of a row is, and where all are minus infinity.
template <class T>
void check_max_simd() {
  for (Index n = 1; n <= 40; ++n) {
    CAPTURE(n);
    std::vector<T> x(static_cast<std::size_t>(n), static_cast<T>(-kInfinity));
    CHECK(kernels::max_simd(n, x.data()) == -kInfinity);
    for (auto& largest : x) {
      largest = -3;
      CHECK(kernels::max_simd(n, x.data()) == -3);
      largest = -4;
    }
  }
}

}  // namespace

TEST_CASE("a row worked by hand: logits ln 1, ln 2, ln 5 are 1/8, 2/8, 5/8") {
  const Tensor x = values({0, std::log(2.0), std::log(5.0)}, {1, 3});
  const OpResult got = run_op([](const auto& in) { return softmax(in[0]); }, {x}, values({1, 0, 0}, {1, 3}));
  CHECK_BELOW(relative_error(got.y, values({0.125, 0.25, 0.625}, {1, 3})), kFewRoundings);
  CHECK_BELOW(relative_error(got.gradients[0], values({7 / 64., -2 / 64., -5 / 64.}, {1, 3})), kFewRoundings);
  const OpResult log =
      run_op([](const auto& in) { return log_softmax(in[0]); }, {x}, values({1, 0, 0}, {1, 3}));
  CHECK_BELOW(relative_error(log.y, values({std::log(0.125), std::log(0.25), std::log(0.625)}, {1, 3})),
              kFewRoundings);
  CHECK_BELOW(relative_error(log.gradients[0], values({7 / 8., -2 / 8., -5 / 8.}, {1, 3})), kFewRoundings);
}

TEST_CASE("softmax and its logarithm equal the definition at every width, on one thread and on several") {
  Generator random(test_seed(1));
  for (const Index n : {1, 15, 16, 17, 31, 32, 33, 64, 257, 512, 4099}) {
    for (const Index rows : {1, 7}) {
      CAPTURE(n);
      const Tensor x = random_normal({rows, n}, random), seed = random_normal({rows, n}, random);
      check_op([](const auto& in) { return softmax(in[0]); }, {x}, seed, softmax_formula(x, seed, false));
      check_op([](const auto& in) { return log_softmax(in[0]); }, {x}, seed, softmax_formula(x, seed, true));
    }
  }
}

TEST_CASE("large logits neither overflow nor lose the differences between them") {
  const Tensor y = softmax(values({1e4, 1e4 + std::log(3.0), -1e4}, {1, 3}));
  CHECK_BELOW(relative_error(y, values({0.25, 0.75, 0}, {1, 3})), 1e-12);
  CHECK(log_softmax(values({0, -1e4}, {1, 2})).at(1) == -1e4);
  const Tensor f32 = softmax(values({88, 89, 300}, {1, 3}).to(DType::f32));
  CHECK(f32.at(2) == 1);
}

TEST_CASE("minus infinity gets exactly zero; a row of nothing else is zeros without gradient") {
  for (const DType type : {DType::f64, DType::f32}) {
    for (const Index n : {3, 20, 64}) {
      const Tensor x =
          filled({2, n}, [&](Index i) { return i >= n || i == 1 ? -kInfinity : 0.1 * i; }).to(type);
      const Tensor bent = filled({2, n}, [](Index i) { return i * i; });
      const OpResult got = run_op([](const auto& in) { return softmax(in[0]); }, {x}, bent);
      double total = 0;
      for (Index i = 0; i < n; ++i) total += got.y.at(i);
      CHECK(total == doctest::Approx(1));
      CHECK(got.y.at(1) == 0);
      CHECK(got.gradients[0].at(1) == 0);
      CHECK(got.gradients[0].at(2) != 0);
      for (Index i = n; i < 2 * n; ++i) {
        CHECK(got.y.at(i) == 0);
        CHECK(got.gradients[0].at(i) == 0);
      }
      CHECK(log_softmax(x).at(n) == -kInfinity);
      CHECK(log_softmax(x).at(1) == -kInfinity);
    }
  }
}

TEST_CASE("the largest of a row is found anywhere, even among nothing but minus infinities") {
  check_max_simd<float>();
  check_max_simd<double>();
}

TEST_CASE("a NaN is not hidden, wherever it is in the row") {
  for (const Index at : {0, 1, 16, 39}) {
    const Tensor x = filled({1, 40}, [&](Index i) { return i == at ? kNan : -kInfinity; });
    CHECK(std::isnan(softmax(x).at(at)));
    CHECK(std::isnan(softmax(x.to(DType::f32)).at(at)));
  }
}

TEST_CASE("nothing in, nothing out") {
  CHECK(softmax(Tensor::empty({0, 5})).shape() == Shape{0, 5});
  CHECK(softmax(Tensor::empty({5, 0})).shape() == Shape{5, 0});
  CHECK(log_softmax(Tensor::empty({5, 0}), 0).shape() == Shape{5, 0});
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(3));
  const Tensor x = random_normal({3, 5, 4}, random), wide = random_normal({2, 33}, random);
  check_both_orders("softmax", [&] { return softmax(x); }, {{"x", x}});
  check_both_orders("softmax", [&] { return softmax(wide); }, {{"x", wide}});
  check_both_orders("softmax axis 1", [&] { return softmax(x, 1); }, {{"x", x}});
  check_both_orders("log_softmax", [&] { return log_softmax(x); }, {{"x", x}});
  check_both_orders("log_softmax axis 0", [&] { return log_softmax(x, 0); }, {{"x", x}});
}

TEST_CASE("golden values") {
  const Golden golden("ops");
  for (const auto& [name, axis] : {std::pair{"softmax", -1}, std::pair{"softmax_middle", 1}}) {
    const int at = axis;
    const std::string log_name = std::string("log_") + name;
    check_golden(golden, name, {"x"}, [at](const auto& in) { return softmax(in[0], at); });
    check_golden(golden, log_name, {"x"}, [at](const auto& in) { return log_softmax(in[0], at); });
  }
}

TEST_CASE("an axis that x does not have is refused by name") {
  CHECK_THROWS_WITH_AS(softmax(Tensor::zeros({2, 3}), 2), doctest::Contains("axis=2 of [2,3]"), ShapeError);
  CHECK_THROWS_WITH_AS(softmax(Tensor::zeros({2, 3}, DType::i32)),
                       "[softmax] values must be floating-point numbers; got x=i32[2,3]; try to(DType::f32)",
                       DTypeError);
}
