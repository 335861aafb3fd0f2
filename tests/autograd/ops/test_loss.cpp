#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/formulas.h>
#include <tapeformer/tests/reference/rounding.h>

#include <nlohmann/json.hpp>

#include <cmath>

using namespace tapeformer;

TEST_CASE("two tokens worked by hand: p = 1/4 and p = 1/2 give (ln 4 + ln 2) / 2") {
  const Tensor logits = values({0, std::log(3.0), 5, 5}, {2, 2});
  const OpResult got = run_op(
      [](const auto& in) {
        return cross_entropy(in[0], integers({0, 1}, {2}));
      },
      {logits}, Tensor::scalar(1, DType::f64));
  CHECK_BELOW(deviation(got.y.item(), 1.5 * std::log(2.0)), kFewRoundings);
  CHECK_BELOW(relative_error(got.gradients[0], values({-0.375, 0.375, 0.25, -0.25}, {2, 2})), kFewRoundings);
}

TEST_CASE("loss and gradient equal the definition at every width, with gaps, smoothing and a softcap") {
  Generator random(test_seed(1));
  for (const Index n : {2, 15, 16, 17, 31, 32, 33, 257, 1024, 1025, 4099}) {
    for (const Index rows : {3, 9}) {  // a single row may have just the probabilities that smoothing wants
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        for (const double softcap : {0.0, 1.5}) {
          CAPTURE(n);
          CAPTURE(smoothing);
          CAPTURE(softcap);
          const CrossEntropyOptions options{-1, smoothing, softcap};
          const Tensor logits = random_normal({rows, 2, n}, random);
          const Tensor targets = ids_with_gaps({rows, 2}, n, random);
          check_op([&](const auto& in) { return cross_entropy(in[0], targets, options); }, {logits},
                   Tensor::scalar(-3, DType::f64), cross_entropy_formula(logits, targets, options, -3));
        }
      }
    }
  }
}

TEST_CASE("one class leaves no choice: no loss and no gradient") {
  for (const DType type : {DType::f64, DType::f32}) {
    const OpResult got = run_op(
        [](const auto& in) {
          return cross_entropy(in[0], integers({0, 0}, {2}), {-1, 0.1});
        },
        {values({3, -5}, {2, 1}).to(type)}, Tensor::scalar(1, DType::f64));
    CHECK(got.y.item() == 0);
    CHECK_BELOW(absolute_error(got.gradients[0], values({0, 0}, {2, 1})), 1e-7);
  }
}

TEST_CASE("large logits do not overflow and small differences survive") {
  const Tensor logits = values({1e4, 1e4, -1e4, 1e4}, {2, 2}).to(DType::f32);
  CHECK_BELOW(deviation(cross_entropy(logits, integers({0, 0}, {2})).item(), (std::log(2.0) + 2e4) / 2),
              1e-7);
}

TEST_CASE("ignored rows get exactly zero, whatever they hold; nothing but ignored rows gives no loss") {
  const Tensor logits = values({kNan, kInfinity, 0, 0}, {2, 2});
  for (const Index second : {0, 7}) {
    const Tensor targets = integers({7, static_cast<std::int32_t>(second)}, {2});
    const OpResult got = run_op(
        [&](const auto& in) {
          return cross_entropy(in[0], targets, {7, 0.1});
        },
        {logits}, Tensor::scalar(1, DType::f64));
    CHECK(got.y.item() == doctest::Approx(second == 7 ? 0 : std::log(2.0)));
    CHECK(got.gradients[0].at(0) == 0);
    CHECK(got.gradients[0].at(1) == 0);
    CHECK(got.gradients[0].at(2) == doctest::Approx(second == 7 ? 0 : -0.45));
  }
}

TEST_CASE("an id of the vocabulary may be the ignored one") {
  const Tensor logits = values({0, 0, 0, std::log(3.0)}, {2, 2});
  CHECK(cross_entropy(logits, integers({0, 1}, {2}), {0, 0}).item() == doctest::Approx(std::log(4 / 3.)));
}

TEST_CASE("no tokens, no loss") {
  const OpResult got = run_op(
      [](const auto& in) {
        return cross_entropy(in[0], Tensor::empty({0, 2}, DType::i32));
      },
      {Tensor::zeros({0, 2, 5}, DType::f64)}, Tensor::scalar(1, DType::f64));
  CHECK(got.y.item() == 0);
  CHECK(got.gradients[0].shape() == Shape{0, 2, 5});
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(3));
  const Tensor logits = random_normal({2, 4, 7}, random), targets = ids_with_gaps({2, 4}, 7, random);
  const auto check = [&](const std::string& name, const CrossEntropyOptions& options) {
    check_both_orders(name, [&] { return cross_entropy(logits, targets, options); }, {{"logits", logits}});
  };
  check("cross_entropy", {});
  check("cross_entropy, smoothed", {-1, 0.1});
  check("cross_entropy, capped", {-1, 0.1, 1.5});
}

TEST_CASE("golden values") {
  const Golden golden("ops");
  for (const char* name : {"cross_entropy", "cross_entropy_smoothed", "cross_entropy_ignored",
                           "cross_entropy_ignored_smoothed"}) {
    const auto given = golden.options(name);
    const CrossEntropyOptions options{given["ignored"].get<Index>(), given["smoothing"].get<double>()};
    const Tensor targets = golden.tensor(name, "in.targets");
    check_golden(golden, name, {"logits"}, [&](const auto& in) {
      return reshape(cross_entropy(in[0], targets, options), {1});
    });  // numpy keeps no scalars
  }
}

TEST_CASE("bad targets are refused with their place, and options with their value") {
  const Tensor logits = Tensor::zeros({2, 3, 5}), targets = Tensor::zeros({2, 3}, DType::i32);
  CHECK_THROWS_WITH_AS(
      cross_entropy(logits, integers({0, 1, 2, 3, 4, 5}, {2, 3})),
      "[cross_entropy] targets must be in [0, 5), or -1 (ignored); got 5 at [1,2] of targets=i32[2,3]",
      ShapeError);
  CHECK_THROWS_WITH_AS(cross_entropy(logits, integers({0, 1}, {2})),
                       "[cross_entropy] targets must have the shape of the rows, without the last axis; got "
                       "logits=f32[2,3,5], targets=i32[2]",
                       ShapeError);
  CHECK_THROWS_WITH_AS(cross_entropy(logits, Tensor::zeros({2, 3})),
                       "[cross_entropy] indices must be i32; got targets=f32[2,3]; try to(DType::i32)",
                       DTypeError);
  CHECK_THROWS_WITH_AS(cross_entropy(logits, targets, {-1, 1.5}),
                       doctest::Contains("[cross_entropy] smoothing must be in [0, 1]; got smoothing=1.5"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(cross_entropy(logits, targets, {-1, 0, -1}),
                       doctest::Contains("[cross_entropy] softcap must not be negative; got softcap=-1"),
                       ShapeError);
}
