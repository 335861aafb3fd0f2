#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/formulas.h>
#include <tapeformer/tests/reference/gradcheck_table.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_SUITE("nn/layer_norm") {
  TEST_CASE("a row worked by hand") {
    // Mean 3, variance 3.5; with epsilon 0.5 the deviation is 2.
    LayerNorm norm({4, 0.5, true});
    const Tensor x = Tensor::from<double>({1, 2, 3, 6}, {1, 4});
    norm.to(DType::f64);
    CHECK(norm(x).to_vector<double>() == std::vector<double>{-1, -0.5, 0, 1.5});
    norm.named_parameters()[0].second.set_value(Tensor::from<double>({1, 2, 3, 4}));
    norm.named_parameters()[1].second.set_value(Tensor::from<double>({10, 20, 30, 40}));
    CHECK(norm(x).to_vector<double>() == std::vector<double>{9, 19, 30, 46});
  }

  TEST_CASE("it agrees with the formula at widths around those of vectors") {
    for (const Index width : {1, 31, 32, 33, 257}) {
      LayerNorm norm({width, 1e-5, true});
      norm.to(DType::f64);
      randomise(norm, 5);
      const Tensor weight = norm.named_parameters()[0].second, bias = norm.named_parameters()[1].second;
      const Tensor x = random_values({2, 3, width}, 6);
      const Tensor expected = norm_formula(x, weight, bias, x, true, 1e-5).y;
      CHECK_BELOW(relative_error(norm(x), expected), 1e-12);
      norm.to(DType::f32);
      CHECK_BELOW(relative_error(norm(x.to(DType::f32)), expected), 2e-6);
    }
  }

  TEST_CASE("gradients of both orders agree with differences, with and without bias") {
    for (const bool bias : {true, false}) {
      LayerNorm norm({7, 1e-5, bias});
      norm.to(DType::f64);
      randomise(norm, 7);
      const Tensor x = random_values({2, 3, 7}, 8);
      check_gradients(bias ? "layer_norm layer" : "layer_norm layer without bias",
                      gradcheck_module(
                          norm, {{"x", x}}, [&] { return norm(x); }, second_order()));
    }
  }

  TEST_CASE("it starts as plain normalisation, and the bias is optional") {
    LayerNorm norm({3, 1e-5, true}), without({3, 1e-5, false});
    CHECK(norm.parameter_count() == 6);
    CHECK(without.parameter_count() == 3);
    CHECK(norm.named_parameters()[0].second.value().to_vector<float>() == std::vector<float>{1, 1, 1});
    CHECK(norm.named_parameters()[1].second.value().to_vector<float>() == std::vector<float>{0, 0, 0});
    const Tensor x = random_values({4, 3}, 9, DType::f32);
    CHECK(same_bits(norm(x), without(x)));
  }

  TEST_CASE("another width is refused") {
    LayerNorm norm({3, 1e-5, true});
    CHECK(message_of<ShapeError>([&] { norm(Tensor::zeros({2, 4})); }).find("[layer_norm] ") == 0);
  }
}
