#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/feed_forward.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

void set(Module& module, const std::string& name, const Tensor& value) {
  for (auto& [path, parameter] : module.named_parameters()) {
    if (path == name) return parameter.set_value(value);
  }
  FAIL("no parameter is called " << name);
}

}  // namespace

TEST_SUITE("nn/feed_forward") {
  TEST_CASE("a network worked by hand") {
    Generator random(1);
    FeedForward layer({2, 3, Unary::relu, 0, true}, random);
    set(layer, "up.weight", Tensor::from<float>({1, 0, 0, 1, 1, -1}, {3, 2}));
    set(layer, "up.bias", Tensor::from<float>({0, -3, 1}));
    set(layer, "down.weight", Tensor::from<float>({1, 10, 100, 2, 20, 200}, {2, 3}));
    set(layer, "down.bias", Tensor::from<float>({0.5, -0.5}));
    // [2, 4]: up gives 2, 1, -1, of which relu leaves 2, 1, 0; [1, -1]: 1, -4, 3 gives 1, 0, 3.
    CHECK(layer(Tensor::from<float>({2, 4, 1, -1}, {2, 2})).to_vector<float>() ==
          std::vector<float>{12.5, 23.5, 301.5, 601.5});
  }

  TEST_CASE("the hidden width is four times the width unless it is given") {
    Generator random(1);
    CHECK(FeedForward({6, 0, Unary::relu, 0, true}, random).parameter_count() == 24 * 6 + 24 + 6 * 24 + 6);
    CHECK(FeedForward({6, 5, Unary::relu, 0, false}, random).parameter_count() == 60);
  }

  TEST_CASE("gradients of both orders agree with differences for each smooth activation, with dropout") {
    for (const Unary activation : {Unary::gelu, Unary::gelu_tanh, Unary::silu}) {
      for (const double dropout : {0.0, 0.3}) {
        Generator random(2);
        FeedForward layer({5, 7, activation, dropout, true}, random);
        layer.to(DType::f64);
        randomise(layer, 3);
        const Tensor x = random_values({2, 3, 5}, 4);
        const std::string name =
            std::string("feed_forward ") + name_of(activation) + (dropout > 0 ? " dropout" : "");
        check_gradients(name, gradcheck_module(
                                  layer, {{"x", x}}, [&] { return layer(x); }, second_order()));
      }
    }
  }

  TEST_CASE("gradients agree with differences for relu, away from its kink") {
    Generator random(2);
    FeedForward layer({5, 6, Unary::relu, 0.3, true}, random);
    layer.to(DType::f64);
    randomise(layer, 3);
    set(layer, "up.bias", Tensor::from<double>({9, -9, 9, 9, -9, 9}));
    const Tensor x = random_values({2, 3, 5}, 4);
    check_gradients("feed_forward relu", gradcheck_module(
                                             layer, {{"x", x}}, [&] { return layer(x); }, second_order()));
  }

  TEST_CASE("activations go by name, and an unknown one is refused with the names there are") {
    for (const Unary f : {Unary::relu, Unary::gelu, Unary::gelu_tanh, Unary::silu})
      CHECK(activation_named(name_of(f)) == f);
    CHECK(message_of<Error>([] { activation_named("tanhh"); }) ==
          "[feed_forward] the activation must be relu, gelu, gelu_tanh or silu; got tanhh");
  }
}
