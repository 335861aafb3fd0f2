#include <doctest/doctest.h>
#include <omp.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/matmul_case.h>
#include <tapeformer/tests/reference/threads.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>

using namespace tapeformer;

TEST_CASE("an affine map with an activation, worked by hand") {
  const Parameter x(values({1, 2}, {1, 2})), weight(values({1, 1, 3, -4}, {2, 2})), bias(values({0.5, 1}));
  Tape tape;
  const Tensor y = linear(x, weight, bias, Unary::relu);
  CHECK(y.to_vector<double>() == std::vector<double>{3.5, 0});
  tape.backward(y, values({2, 2}, {1, 2}));
  CHECK(x.gradient().to_vector<double>() == std::vector<double>{2, 2});
  CHECK(weight.gradient().to_vector<double>() == std::vector<double>{2, 4, 0, 0});
  CHECK(bias.gradient().to_vector<double>() == std::vector<double>{2, 0});
}

TEST_CASE("it agrees with the same in plain operations, forward and backward, at every size") {
  Generator random(test_seed(1));
  // Without relu, whose slope at a sum near zero depends on roundings.
  constexpr std::optional<Unary> kActivations[] = {{}, Unary::gelu, Unary::tanh, Unary::silu};
  for (const Shape& shape : {Shape{5, 1}, {5, 31}, {2, 3, 32}, {33}, {2, 257}, {0, 4}, {3, 0}, {257, 33}}) {
    for (const std::optional<Unary> activation : kActivations) {
      for (const bool biased : {false, true}) {
        INFO(shape.text(), " ", biased, " ", activation ? name_of(*activation) : "");
        // Sums around 1, where no activation is flat.
        const double size = 1 / std::sqrt(static_cast<double>(shape[-1] + 1));
        std::vector<Tensor> inputs{random_normal(shape, random),
                                   size * random_normal({7, shape[-1]}, random)};
        if (biased) inputs.push_back(random_normal({7}, random));
        Shape outputs = shape;
        outputs.set(-1, 7);
        const Op plain = [&](const std::vector<Tensor>& in) {
          const Tensor rows = reshape(in[0], {shape.elements(0, shape.rank() - 1), shape[-1]});
          Tensor y = reshape(matmul(rows, transposed(in[1])), outputs);
          if (biased) y = y + in[2];
          return activation ? unary(*activation, y) : y;
        };
        const Tensor seed = random_normal(outputs, random);
        const auto map = [&](const auto& in) {
          return linear(in[0], in[1], biased ? in[2] : Tensor(), activation);
        };
        check_op(map, inputs, seed, run_op(plain, inputs, seed));
      }
    }
  }
}

TEST_CASE("it passes the gradient check with every activation, and so do its gradients") {
  Generator random(test_seed(2));
  for (const Unary f :
       {Unary::exp, Unary::tanh, Unary::erf, Unary::sigmoid, Unary::gelu, Unary::gelu_tanh, Unary::silu}) {
    const Tensor x = random_normal({2, 3, 4}, random), weight = random_uniform({5, 4}, -0.5, 0.5, random),
                 bias = random_normal({5}, random);
    check_both_orders("linear", [&] { return linear(x, weight, bias, f); },
                      {{"x", x}, {"weight", weight}, {"bias", bias}});
  }
  const Tensor x = random_normal({3, 4}, random), weight = random_normal({5, 4}, random),
               bias = random_normal({5}, random);
  check_both_orders("linear", [&] { return linear(x, weight, bias); },
                    {{"x", x}, {"weight", weight}, {"bias", bias}});
  check_both_orders("linear", [&] { return linear(x, weight); }, {{"x", x}, {"weight", weight}});
  // Signs that a small step cannot change keep relu away from its kink.
  const Tensor positive = random_uniform({3, 4}, 0.5, 1, random),
               signs = values({1, 1, 1, 1, -1, -1, -1, -1}, {2, 4});
  check_both_orders("linear", [&] { return linear(positive, signs, {}, Unary::relu); },
                    {{"x", positive}, {"weight", signs}});
}

TEST_CASE("errors show all three operands") {
  const Tensor x = Tensor::zeros({2, 3}), weight = Tensor::zeros({4, 3});
  const std::string rule = "[linear] x [..., In], weight [Out, In] and bias [Out] must fit; got ";
  CHECK(message_of<ShapeError>([&] {
          return linear(Tensor::zeros({2, 4}), weight);
        }) == rule + "x=f32[2,4], weight=f32[4,3], bias=undefined");
  CHECK(message_of<ShapeError>([&] { return linear(x, weight, Tensor::zeros({3})); }) ==
        rule + "x=f32[2,3], weight=f32[4,3], bias=f32[3]");
  CHECK(message_of<ShapeError>([&] { return linear(x, x.alias({1, 2, 3})); }).rfind(rule, 0) == 0);
  CHECK_THROWS_WITH_AS(linear(x, weight.to(DType::f64)),
                       doctest::Contains("[linear] all operands must have one type"), DTypeError);
}

TEST_CASE("values and gradients agree with PyTorch") {
  const Golden golden("ops");
  for (const char* name : {"linear", "linear_relu", "linear_gelu", "linear_gelu_tanh", "linear_no_bias"}) {
    const std::string activation = golden.options(name)["activation"];
    const std::optional<Unary> f = activation == "relu"        ? std::optional(Unary::relu)
                                   : activation == "gelu"      ? std::optional(Unary::gelu)
                                   : activation == "gelu_tanh" ? std::optional(Unary::gelu_tanh)
                                                               : std::nullopt;
    const bool biased = !golden.names(name, "in.bias").empty();
    const auto map = [&](const std::vector<Tensor>& x) {
      return linear(x[0], x[1], biased ? x[2] : Tensor(), f);
    };
    const std::vector<std::string> names =
        biased ? std::vector<std::string>{"x", "weight", "bias"} : std::vector<std::string>{"x", "weight"};
    check_golden(golden, name, names, map, 5e-15);
  }
}

TEST_CASE("few rows times a matrix of any size, on two threads, restore the number of threads") {
  const Threads set(2);
  for (const Index rows : {1, 3, 4, 5}) {
    for (const Shape& sizes : {Shape{1, 7}, Shape{65, 128}, Shape{447, 447}, Shape{448, 449}}) {
      const Tensor x = filled({rows, sizes[1]}, [](Index i) { return static_cast<double>(i * 7 % 11) - 5; }),
                   weight = filled(sizes, [](Index i) { return static_cast<double>(i * 5 % 13) - 6; });
      INFO("x=", x.describe(), ", weight=", weight.describe());
      const Tensor expected = oracle(x, transposed(weight));  // of whole numbers, so exact
      CHECK(absolute_error(linear(x, weight), expected) == 0);
      CHECK(absolute_error(linear(x.to(DType::f32), weight.to(DType::f32)), expected) == 0);
      CHECK(omp_get_max_threads() == 2);
    }
  }
}
