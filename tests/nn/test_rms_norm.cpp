#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/formulas.h>
#include <tapeformer/tests/reference/gradcheck_table.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_SUITE("nn/rms_norm") {
  TEST_CASE("a row worked by hand") {
    // Mean square 25; with epsilon 11 the root is 6.
    RmsNorm norm({2, 11});
    norm.to(DType::f64);
    norm.named_parameters()[0].second.set_value(Tensor::from<double>({12, -6}));
    const Tensor y = norm(Tensor::from<double>({1, 7}, {1, 2}));
    CHECK_BELOW(deviation(y.at(0), 2), 1e-15);
    CHECK_BELOW(deviation(y.at(1), -7), 1e-15);
  }

  TEST_CASE("it agrees with the formula at widths around those of vectors") {
    for (const Index width : {1, 31, 32, 33, 257}) {
      RmsNorm norm({width, 1e-6});
      norm.to(DType::f64);
      randomise(norm, 5);
      const Tensor weight = norm.named_parameters()[0].second, x = random_values({2, 3, width}, 6);
      const Tensor zeros = Tensor::zeros({width}, DType::f64);
      const Tensor expected = norm_formula(x, weight, zeros, x, false, 1e-6).y;
      CHECK_BELOW(relative_error(norm(x), expected), 1e-12);
      norm.to(DType::f32);
      CHECK_BELOW(relative_error(norm(x.to(DType::f32)), expected), 2e-6);
    }
  }

  TEST_CASE("gradients of both orders agree with differences") {
    RmsNorm norm({7, 1e-6});
    norm.to(DType::f64);
    randomise(norm, 7);
    const Tensor x = random_values({2, 3, 7}, 8);
    check_gradients("rms_norm layer", gradcheck_module(
                                          norm, {{"x", x}}, [&] { return norm(x); }, second_order()));
  }

  TEST_CASE("it starts with unit weights and refuses another width") {
    RmsNorm norm({3, 1e-6});
    CHECK(norm.named_parameters()[0].second.value().to_vector<float>() == std::vector<float>{1, 1, 1});
    CHECK(message_of<ShapeError>([&] { norm(Tensor::zeros({2, 4})); }).find("[rms_norm] ") == 0);
  }
}
