#include <tapeformer/nn/linear.h>
#include <tapeformer/tests/nn/module_case.h>

#include <algorithm>

using namespace tapeformer;

TEST_CASE("an affine map worked by hand, with and without bias and activation") {
  Generator random(test_seed(1));
  const Tensor weight = Tensor::from<float>({1, 2, 3, -1, 0, 2}, {2, 3});
  const Tensor x = Tensor::from<float>({1, 0, -1, 2, 1, 0}, {2, 3});
  const auto apply = [&](bool bias, std::optional<Unary> activation) {
    Linear layer({3, 2, bias, activation}, random);
    layer.weight().set_value(weight);
    if (bias) layer.bias().set_value(Tensor::from<float>({10, 1}));
    return layer(x).to_vector<float>();
  };
  CHECK(apply(false, {}) == std::vector<float>{-2, -3, 4, -2});
  CHECK(apply(true, {}) == std::vector<float>{8, -2, 14, -1});
  CHECK(apply(true, Unary::relu) == std::vector<float>{8, 0, 14, 0});
}

TEST_CASE("weight and bias start as in PyTorch: uniform within one over the root of the inputs") {
  Generator random(test_seed(1));
  Linear layer({64, 100, true, {}}, random);
  for (const Tensor& x : {layer.weight().value(), layer.bias().value()}) {
    double largest = 0, total = 0;
    for (Index i = 0; i < x.elements(); ++i) {
      largest = std::max(largest, std::fabs(x.at(i)));
      total += x.at(i);
    }
    CHECK(largest <= 0.125);
    CHECK(largest > 0.1);  // of 100 draws, by 0.8^100; one over the root of the outputs
    CHECK_BELOW(std::fabs(total / static_cast<double>(x.elements())),
                kDeviations * 0.0722 / std::sqrt(x.elements()));
  }
  CHECK(Linear({64, 100, false, {}}, random).parameter_count() == 6400);
  CHECK(Linear({0, 1, true, {}}, random).bias().value().item() == 0);  // as in PyTorch, without a bound
}
