#include <doctest/doctest.h>
#include <omp.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/autograd/ops/matmul_case.h>
#include <tapeformer/tests/reference/threads.h>

#include <nlohmann/json.hpp>

#include <optional>

using namespace tapeformer;

namespace {

/// The largest errors of linear() and its gradients. No activation's slope is above 1.13 (gelu's), none bends
/// by more than 1.2; its value for z is off by some last places of z and of 1, xsimd's erf in f64 by up to
/// 30.
OpResult linear_rounding(const std::vector<Tensor>& in, bool is_active, const Tensor& seed, DType type) {
  const Index inner = in[1].size(1), outer = in[1].size(0), rows = seed.elements() / outer;
  const Tensor x = reshape(magnitude(in[0]), {rows, inner}), weight = magnitude(in[1]),
               dy = reshape(magnitude(seed), {rows, outer});
  Tensor z = matmul(x, transposed(weight));
  if (in.size() > 2) z = z + magnitude(in[2]);
  const double last = (type == DType::f64 ? 60 : 8) * unit_roundoff(type), of_z = gamma_of(inner + 5, type);
  // The error and the size of dz, over which sums are taken.
  const Tensor off = is_active ? dy * affine(z, 1.2 * of_z, last) : affine(dy, last, 0);
  const auto dz = [&](Index terms) {
    return off + affine(dy, (is_active ? 1.13 : 1) * gamma_of(terms + 4, type), 0);
  };
  const Tensor y = is_active ? affine(z, 1.13 * of_z + last, last) : affine(z, of_z, 0);
  OpResult bound{reshape(y, seed.shape()),
                 {reshape(matmul(dz(outer), weight), in[0].shape()), matmul(transposed(dz(rows)), x)}};
  if (in.size() > 2) bound.gradients.push_back(sum(dz(rows), {0}));
  return bound;
}

}  // namespace

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
  const Shape shapes[] = {{1, 1}, {5, 31}, {2, 3, 32}, {33}, {2, 257}, {0, 4}, {3, 0}, {257, 33}};
  for (const Shape& shape : shapes) {
    for (const std::optional<Unary> activation :
         {std::optional<Unary>(), {Unary::relu}, {Unary::gelu}, {Unary::tanh}, {Unary::silu}}) {
      for (const bool biased : {false, true}) {
        INFO(shape.text(), " ", biased, " ", activation.has_value());
        const Tensor x = random_normal(shape, random), weight = random_normal({7, shape[-1]}, random);
        const Tensor bias = biased ? random_normal({7}, random) : Tensor();
        Tape tape;
        std::vector<Tensor> inputs = {x, weight};
        if (biased) inputs.push_back(bias);
        for (const Tensor& input : inputs) tape.watch(input);
        const Tensor y = linear(x, weight, bias, activation);
        Tensor composed =
            reshape(matmul(reshape(x, {shape.elements(0, shape.rank() - 1), shape[-1]}), transposed(weight)),
                    y.shape());
        if (biased) composed = composed + bias;
        if (activation) composed = unary(*activation, composed);
        const Tensor seed = random_normal(y.shape(), random);
        const auto bound = [&](DType type) {
          return linear_rounding(inputs, activation.has_value(), seed, type);
        };
        const std::vector<Tensor> got = tape.gradients(y, inputs, seed),
                                  expected = tape.gradients(composed, inputs, seed);
        CHECK_BELOW(over_bound(y, composed, bound(DType::f64).y), 2);  // both are rounded
        for (std::size_t i = 0; i < inputs.size(); ++i)
          CHECK_BELOW(over_bound(got[i], expected[i], bound(DType::f64).gradients[i]), 2);
        if (shape.elements() > 0) {
          const Tensor single = linear(x.to(DType::f32), weight.to(DType::f32),
                                       biased ? bias.to(DType::f32) : Tensor(), activation);
          CHECK_BELOW(over_bound(single, composed, bound(DType::f32).y), 1);
        }
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
