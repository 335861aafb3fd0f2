#include <tapeformer/autograd/ops/causal_convolution.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <cmath>

using namespace tapeformer;

namespace {

/// y, dx and dweight by triple loops, of |x|, |weight| and |seed| if `sizes`.
OpResult loops(const Tensor& x, const Tensor& weight, const Tensor& seed, bool sizes = false) {
  const Index B = x.size(0), T = x.size(1), C = x.size(2), K = weight.size(0);
  const auto at = [&](const Tensor& of, Index i) { return sizes ? std::fabs(of.at(i)) : of.at(i); };
  const auto copy = [&](const Tensor& of) { return filled(of.shape(), [&](Index i) { return at(of, i); }); };
  OpResult result{copy(x), {copy(seed), Tensor::zeros(weight.shape(), DType::f64)}};
  double *y = result.y.data<double>(), *dx = result.gradients[0].data<double>(),
         *dweight = result.gradients[1].data<double>();
  for (Index b = 0; b < B; ++b) {
    for (Index t = 0; t < T; ++t) {
      for (Index j = 0; j < K && j <= t; ++j) {
        for (Index c = 0; c < C; ++c) {
          const Index here = (b * T + t) * C + c, before = here - j * C, tap = j * C + c;
          y[here] += at(weight, tap) * at(x, before);
          dx[before] += at(weight, tap) * at(seed, here);
          dweight[tap] += at(seed, here) * at(x, before);
        }
      }
    }
  }
  return result;
}

Tensor convolved(const std::vector<Tensor>& in) { return causal_convolution(in[0], in[1]); }

}  // namespace

TEST_CASE("two sequences worked by hand") {
  const Tensor x = values({1, 2, 3, 10, 20, 30}, {2, 3, 1}), weight = values({0.5, -1}, {2, 1});
  const OpResult got = run_op(convolved, {x, weight}, Tensor::full({2, 3, 1}, 1, DType::f64));
  CHECK(got.y.to_vector<double>() == std::vector<double>{1.5, 2, 2.5, 15, 20, 25});
  CHECK(got.gradients[0].to_vector<double>() == std::vector<double>{0.5, 0.5, 1.5, 0.5, 0.5, 1.5});
  CHECK(got.gradients[1].to_vector<double>() == std::vector<double>{66, 33});
}

TEST_CASE("values and gradients are those of plain loops, in f32 as far as its roundings allow") {
  Generator random(test_seed(1));
  for (const Index width : {1, 31, 32, 33, 257}) {
    for (const Index taps : {1, 2, 3, 4, 5, 7, 9}) {
      for (const Index length : {1, 6, 70}) {
        CAPTURE(width);
        CAPTURE(taps);
        CAPTURE(length);
        const Tensor x = random_normal({3, length, width}, random),
                     weight = random_normal({taps, width}, random), seed = random_normal(x.shape(), random);
        const OpResult expected = loops(x, weight, seed), sizes = loops(x, weight, seed, true);
        check_within(run_op(convolved, {x, weight}, seed), expected,
                     {1e-14 * sizes.y, {1e-14 * sizes.gradients[0], 1e-13 * sizes.gradients[1]}});
        // Operands and products are rounded, and every sum; twice that, as few roundings may well add up.
        const double u = std::ldexp(1, -24);
        const auto terms = 2 * static_cast<double>(taps + 3), rows = 2 * static_cast<double>(3 * length + 3);
        check_within(run_op(convolved, {x.to(DType::f32), weight.to(DType::f32)}, seed), expected,
                     {terms * u * sizes.y, {terms * u * sizes.gradients[0], rows * u * sizes.gradients[1]}});
      }
    }
  }
}

TEST_CASE("golden values") {
  for (const char* name : {"causal_convolution", "causal_convolution_short"})
    check_golden(Golden("ops"), name, {"x", "weight"}, convolved);
}

TEST_CASE("a weight may be one row of numbers") {
  Generator random(test_seed(2));
  const Tensor x = random_normal({2, 5, 3}, random), weight = random_normal({2, 3}, random);
  const Tensor seed = random_normal(x.shape(), random), flat = weight.alias({6});
  const OpResult one = run_op(convolved, {x, weight}, seed), other = run_op(convolved, {x, flat}, seed);
  CHECK(one.y.to_vector<double>() == other.y.to_vector<double>());
  CHECK(other.gradients[1].shape() == Shape{6});
  CHECK(one.gradients[1].to_vector<double>() == other.gradients[1].to_vector<double>());
}

TEST_CASE("gradients of both orders, added to another use's") {
  Generator random(test_seed(3));
  const Tensor x = random_normal({2, 5, 3}, random);
  for (const Index taps : {1, 3, 6}) {
    const Tensor weight = random_normal({taps, 3}, random);
    check_both_orders(
        "causal_convolution, " + std::to_string(taps) + " taps",
        [&] { return pow(causal_convolution(x, weight), 2) + causal_convolution(2 * x, weight); },
        {{"x", x}, {"weight", weight}});
  }
}

TEST_CASE("nothing in, nothing out, and a gradient of zero") {
  for (const Shape& shape : {Shape{0, 4, 3}, Shape{2, 0, 3}}) {
    const Tensor x = Tensor::empty(shape, DType::f64);
    const OpResult got = run_op(convolved, {x, Tensor::full({2, 3}, 1, DType::f64)}, x);
    CHECK(got.y.shape() == shape);
    CHECK(got.gradients[1].to_vector<double>() == std::vector<double>(6));
  }
}

TEST_CASE("what does not fit is refused") {
  const Tensor x = Tensor::zeros({2, 4, 3});
  for (const Tensor& weight : {Tensor::zeros({2, 4}), Tensor::zeros({0, 3}), Tensor::zeros({2, 1, 3}),
                               Tensor::zeros({7}), Tensor::zeros({})}) {
    CHECK(message_of<ShapeError>([&] { causal_convolution(x, weight); }) ==
          "[causal_convolution] x must be [B, T, C], C at least 1, and weight [K, C] or [K C], K at least 1; "
          "got x=f32[2,4,3], weight=" +
              weight.describe() + "; try a weight with as many columns as x");
  }
  CHECK_THROWS_AS(causal_convolution(Tensor::zeros({4, 3}), Tensor::zeros({2, 3})), ShapeError);
  CHECK_THROWS_AS(causal_convolution(x, Tensor::zeros({2, 3}, DType::f64)), DTypeError);
}
