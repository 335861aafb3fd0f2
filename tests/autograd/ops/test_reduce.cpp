#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/formulas.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace tapeformer;

namespace {

using Reduction = Tensor (*)(const Tensor&, const Axes&, bool);
struct NamedReduction {
  const char* name;
  Reduction op;
};
const NamedReduction kReductions[] = {
    {"sum", [](const Tensor& x, const Axes& axes, bool keep) { return sum(x, axes, keep); }},
    {"mean", [](const Tensor& x, const Axes& axes, bool keep) { return mean(x, axes, keep); }},
    {"var", [](const Tensor& x, const Axes& axes, bool keep) { return var(x, axes, keep); }},
};

const std::vector<std::vector<int>> kAxes = {{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};

Axes axes_of(const std::vector<int>& axes) { return Axes(axes.begin(), axes.end()); }

}  // namespace

TEST_CASE("reductions worked by hand") {
  const Tensor x = values({1, 2, 3, 4, 5, 9}, {2, 3});
  CHECK(sum(x).item() == 24);
  CHECK(sum(x, {0}).to_vector<double>() == std::vector<double>{5, 7, 12});
  CHECK(sum(x, {-1}).to_vector<double>() == std::vector<double>{6, 18});
  CHECK(mean(x, {1}).to_vector<double>() == std::vector<double>{2, 6});
  CHECK(var(x, {1}).to_vector<double>() == std::vector<double>{1, 7});
  CHECK(var(x, {1}, false, 0).at(0) == doctest::Approx(2.0 / 3));
  CHECK(sum(x, {1}, true).shape() == Shape{2, 1});
  CHECK(sum(x, {1}).shape() == Shape{2});
  CHECK(sum(x, {}, true).shape() == Shape{1, 1});
  CHECK(sum(Tensor::scalar(3, DType::f64)).item() == 3);
}

TEST_CASE("reductions agree with xtensor over all axes and sizes") {
  Generator random(test_seed(1));
  for (const Shape& shape : {Shape{3, 5, 7}, Shape{1, 31, 2}, Shape{32, 2, 33}, Shape{2, 257, 3},
                             Shape{33, 1, 31}, Shape{2, 3, 257}, Shape{1, 1, 1}, Shape{257, 32, 1}}) {
    const Tensor x = random_uniform(shape, 1, 2, random);  // whose sums do not cancel
    for (const NamedReduction& reduction : kReductions) {
      for (const std::vector<int>& axes : kAxes) {
        Index count = 1;
        for (const int axis : axes) count *= shape[axis];
        if (std::string(reduction.name) == "var" && count == 1) continue;
        CAPTURE(std::string(reduction.name));
        CAPTURE(shape.text());
        CAPTURE(axes[0]);
        const Tensor expected = reduction_formula(reduction.name, x, axes);
        const Tensor y = reduction.op(x, axes_of(axes), false);
        CHECK_BELOW(relative_error(y, expected), 1e-11);
        std::vector<int> negative;
        for (const int axis : axes) negative.push_back(axis - 3);
        const Tensor kept = reduction.op(x, axes_of(negative), true);
        CHECK(kept.rank() == 3);
        CHECK(relative_error(kept.alias(y.shape()), y) == 0);
      }
    }
  }
}

TEST_CASE("reductions pass the gradient check over all axes, and so do their gradients") {
  Generator random(test_seed(3));
  const Tensor x = random_uniform({3, 4, 5}, -1, 1, random);
  for (const NamedReduction& reduction : kReductions) {
    for (const std::vector<int>& axes : kAxes) {
      for (const bool keep : {false, true})
        check_both_orders(reduction.name, [&] { return reduction.op(x, axes_of(axes), keep); }, {{"x", x}});
    }
  }
  check_both_orders("var", [&] { return var(x, {1}, false, 0); }, {{"x", x}});
  const Tensor scalar = Tensor::scalar(2, DType::f64);
  check_both_orders("sum", [&] { return sum(scalar * scalar); }, {{"x", scalar}});
}

TEST_CASE("the sum of nothing is zero, its mean is not a number") {
  const Tensor x = Tensor::zeros({3, 0, 2}, DType::f64);
  CHECK(sum(x).item() == 0);
  CHECK(sum(x, {1}).to_vector<double>() == std::vector<double>(6, 0));
  CHECK(sum(x, {0}).shape() == Shape{0, 2});
  CHECK(std::isnan(mean(x).item()));
  const Parameter empty(Tensor::zeros({0, 2}));
  Tape tape;
  tape.backward(sum(empty));
  CHECK(empty.gradient().shape() == Shape{0, 2});
}

TEST_CASE("sum_to sums what broadcasting repeated") {
  Generator random(test_seed(5));
  const Tensor x = random_uniform({2, 3, 4}, 1, 2, random);  // whose sums do not cancel
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{3, 4}, Shape{4}, Shape{}, Shape{1, 4}, Shape{3, 1},
                             Shape{2, 1, 4}, Shape{1, 3, 1}, Shape{1, 1, 1}}) {
    CAPTURE(shape.text());
    const Tensor expected = Tensor::zeros(shape, DType::f64);
    for (Index i = 0; i < x.elements(); ++i) {
      const Tensor positions = filled(shape, [](Index k) { return static_cast<double>(k); });
      expected.data<double>()[static_cast<Index>(broadcast_at(positions, x.shape(), i))] += x.at(i);
    }
    CHECK_BELOW(relative_error(sum_to(x, shape), expected), 1e-14);
    check_both_orders("sum_to", [&] { return sum_to(x, shape); }, {{"x", x}});
  }
  CHECK(sum_to(Tensor::zeros({0, 3}, DType::f64), {3}).to_vector<double>() == std::vector<double>{0, 0, 0});
  CHECK(sum_to(Tensor::zeros({0, 3}, DType::f64), {1, 3}).to_vector<double>() ==
        std::vector<double>{0, 0, 0});
  CHECK_THROWS_AS(sum_to(Tensor::zeros({2, 3}), {3, 2}), ShapeError);
}

TEST_CASE("axes outside the rank are refused") {
  CHECK_THROWS_WITH_AS(sum(Tensor::zeros({2, 3}), {2}),
                       "[shape] axis must be in [-rank, rank); got axis=2 of [2,3]", ShapeError);
  CHECK(message_of<DTypeError>([] { return sum(Tensor::zeros({2}, DType::i32)); }) ==
        "[sum] values must be floating-point numbers; got x=i32[2]; try to(DType::f32)");
}

TEST_CASE("values and gradients agree with PyTorch") {
  const Golden golden("ops");
  for (const char* name : {"sum", "mean", "mean_last", "variance", "variance_middle", "variance_sample"}) {
    const auto options = golden.options(name);
    const Axes axes = axes_of(options["axes"].get<std::vector<int>>());
    const bool keep = options.value("keep", false);
    const std::string kind = std::string(name).substr(0, 3);
    const auto function = [&](const std::vector<Tensor>& x) {
      if (kind == "var") return var(x[0], axes, keep, options["correction"]);
      return kReductions[kind == "sum" ? 0 : 1].op(x[0], axes, keep);
    };
    check_golden(golden, name, {"x"}, function, 5e-15, 1e-6);
  }
}

TEST_CASE("the places of the largest numbers are those of a stable sort") {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  CHECK(largest_places(values({1, 3, 3, -infinity, 3, 0, nan, -infinity, infinity, 0}, {2, 5}), 2)
            .to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 2, 6, 8});
  Generator random(test_seed(5));
  for (const DType type : {DType::f32, DType::f64})
    for (const Index columns : {1, 255, 256, 257, 1000}) {
      std::vector<double> numbers(static_cast<std::size_t>(3 * columns));
      for (double& number : numbers) number = static_cast<double>(random.below(50)) - 25;  // ties
      const Tensor x = Tensor::from(numbers, {3, columns}).to(type);
      for (const Index count : {Index{1}, std::min<Index>(7, columns), columns}) {
        std::vector<std::int32_t> expected;
        for (std::int32_t row = 0; row < 3; ++row) {
          std::vector<std::int32_t> order(static_cast<std::size_t>(columns));
          std::iota(order.begin(), order.end(), row * static_cast<std::int32_t>(columns));
          std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
            return numbers[static_cast<std::size_t>(a)] > numbers[static_cast<std::size_t>(b)];
          });
          std::sort(order.begin(), order.begin() + count);
          expected.insert(expected.end(), order.begin(), order.begin() + count);
        }
        CHECK(largest_places(x, count).to_vector<std::int32_t>() == expected);
      }
    }
  CHECK_THROWS_WITH_AS(largest_places(values({1, 2}, {1, 2}), 3), doctest::Contains("1 to N of N columns"),
                       ShapeError);
}
