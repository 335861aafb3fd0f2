#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/nn/feed_forward.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

TEST_CASE("the hidden width is four times the width unless it is given") {
  Generator random(test_seed(1));
  CHECK(FeedForward({6, 0, Unary::relu, 0, true}, random).parameter_count() == 24 * 6 + 24 + 6 * 24 + 6);
  CHECK(FeedForward({6, 5, Unary::relu, 0, false}, random).parameter_count() == 60);
}

TEST_CASE("a gated network worked by hand") {
  Generator random(test_seed(1));
  FeedForward layer({2, 2, Unary::relu, 0, true, true}, random);
  // The first two rows are the inputs of relu, the other two the gated values.
  set_parameter(layer, "up.weight", Tensor::from<float>({1, 0, 0, 1, 1, 1, 1, -1}, {4, 2}));
  set_parameter(layer, "up.bias", Tensor::from<float>({0, 0, 0, 10}));
  set_parameter(layer, "down.weight", Tensor::from<float>({1, 10, 100, 1000}, {2, 2}));
  set_parameter(layer, "down.bias", Tensor::from<float>({0.5, -0.5}));
  // [2, -3]: relu leaves 2, 0 to gate -1, 15, so -2, 0; [1, 4]: 1, 4 gate 5, 7, so 5, 28.
  CHECK(layer(Tensor::from<float>({2, -3, 1, 4}, {2, 2})).to_vector<float>() ==
        std::vector<float>{-1.5, -200.5, 285.5, 28499.5});
}

TEST_CASE("halves have a limit, which is for gated silu") {
  Generator random(test_seed(1));
  FeedForwardConfig config{3, 4, Unary::silu, 0, false, true, {0.5, 1.3}};
  FeedForward layer(config, random);
  layer.to(DType::f64);
  const Tensor x = random_values({5, 3}, 4);
  const Tensor up = matmul(x, transposed(parameter_of(layer, "up.weight").value()));
  CHECK_BELOW(relative_error(layer(x), matmul(gated_within(0.5, 1.3, up),
                                              transposed(parameter_of(layer, "down.weight").value()))),
              1e-13);
  CHECK_NOTHROW(config.swiglu.check(Unary::silu, true));
  CHECK_NOTHROW(SwigluLimit().check(Unary::gelu, false));
  config.gated = false;
  CHECK(message_of<Error>([&] { FeedForward(config, random); }) ==
        "[feed_forward] swiglu_limit bounds gated silu; got swiglu_limit=0.5, activation=silu, gated=false; "
        "try swiglu_limit=0");
}

TEST_CASE("dropout applies to the gated product, not to the sum") {
  Generator random(test_seed(2));
  FeedForward layer({3, 64, Unary::silu, 0.5, false, true}, random);
  set_parameter(layer, "down.weight", Tensor::full({3, 64}, 1));
  const Tensor x = random_values({1, 3}, 4, DType::f32);
  const Tensor dropped = layer(x);
  CHECK(same_bits(slice(dropped, 1, 0, 1), slice(dropped, 1, 1, 1)));  // one draw for all outputs
  CHECK(dropped.at(0) != 0);
  CHECK_FALSE(same_bits(dropped, layer(x)));
  layer.eval();
  CHECK(same_bits(layer(x), layer(x)));
}

TEST_CASE("activations go by name, and an unknown one is refused with a list of the names") {
  for (const Unary f : kUnaries) {
    if (is_activation(f)) CHECK(activation_named(name_of(f)) == f);
  }
  CHECK(message_of<Error>([] { activation_named("tanhh"); }) ==
        "[feed_forward] the activation must be relu, relu_squared, gelu, gelu_tanh or silu; got tanhh");
}

TEST_CASE("the two halves of a gated up-projection are listed by name") {
  Generator random(test_seed(1));
  FeedForward gated({6, 8, Unary::silu, 0, true, true}, random), plain({6, 8}, random);
  CHECK(gated.row_parts() == std::map<std::string, std::vector<Index>>{{"up.weight", {8, 8}}});
  CHECK(plain.row_parts().empty());
}
