#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/threads.h>

#include <limits>

using namespace tapeformer;

TEST_CASE("the norm of 3 and 4 in two parameters is 5, and stays when it is allowed") {
  const Parameter x(values({0})), y(values({0})), without(Tensor::zeros({2}));
  set_gradient(x, values({3}));
  set_gradient(y, values({4}));
  CHECK(clip_gradient_norm({x, y, without}, 6) == 5);
  CHECK(x.gradient().at(0) == 3);
  CHECK(clip_gradient_norm({x, y, without}, 2.5) == 5);
  const double factor = 2.5 / (5 + 1e-6);  // as clip_grad_norm_ of PyTorch
  CHECK_BELOW(deviation(x.gradient().at(0), 3 * factor), 1e-15);
  CHECK_BELOW(deviation(y.gradient().at(0), 4 * factor), 1e-15);
  CHECK_FALSE(without.gradient().defined());
}

TEST_CASE("gradients of two types have no common norm") {
  const Parameter x(values({0})), y(Tensor::zeros({1}));
  set_gradient(x, values({3}));
  set_gradient(y, Tensor::zeros({1}));
  CHECK_THROWS_AS(gradient_norm({x, y}), DTypeError);
  CHECK_THROWS_AS(gradient_norm({y, x}), DTypeError);
}

TEST_CASE("a norm that is not finite is returned and the gradients stay") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Parameter x(Tensor::zeros({2}));
    set_gradient(x, Tensor::from<float>({7, bad}));
    CHECK_FALSE(std::isfinite(clip_gradient_norm({x}, 1)));
    CHECK(x.gradient().at(0) == 7);
  }
}

TEST_CASE("the norm is exact enough for large gradients, on any number of threads, and all are scaled") {
  for (const Index size : {0, 1, 31, 63, 64, 65, 257, 300001}) {
    const Parameter x(Tensor::zeros({size}));
    const Tensor gradient = Tensor::empty({size});
    Generator(test_seed(1)).fill_normal(gradient, 0, 1e19);  // the squares exceed what f32 holds
    set_gradient(x, gradient);
    const auto norm_on = [&](int threads) {
      const Threads set(threads);
      return gradient_norm({x});
    };
    const double one = norm_on(1);
    double sum = 0;
    for (Index i = 0; i < size; ++i) sum += gradient.at(i) * gradient.at(i);
    CHECK(one == norm_on(2));
    CHECK_BELOW(std::abs(one - std::sqrt(sum)), 1e-12 * std::sqrt(sum));
    const Tensor half = gradient * 0.5;
    clip_gradient_norm({x}, one / 2);
    CHECK_BELOW(relative_error(x.gradient(), half), 1e-6);
  }
}
