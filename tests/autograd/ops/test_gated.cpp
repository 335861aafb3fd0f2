#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

constexpr Unary kGates[] = {Unary::relu, Unary::gelu, Unary::gelu_tanh, Unary::silu, Unary::sigmoid};

double function(Unary f, double x) {
  switch (f) {
    case Unary::relu: return std::max(x, 0.0);
    case Unary::gelu: return x * 0.5 * std::erfc(-x / std::sqrt(2));
    case Unary::gelu_tanh: return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Unary::silu: return x / (1 + std::exp(-x));
    default: return 1 / (1 + std::exp(-x));
  }
}

double derivative(Unary f, double x) {
  if (f == Unary::relu) return x > 0 ? 1 : 0;
  const double h = 1e-3;
  const auto slope = [&](double step) {
    return (function(f, x + step) - function(f, x - step)) / (2 * step);
  };
  return (4 * slope(h) - slope(2 * h)) / 3;
}

OpResult oracle(Unary f, const Tensor& x, const Tensor& dy) {
  const Index width = x.size(-1) / 2;
  const auto at = [&](Index i, bool second) {
    return x.at(width == 0 ? 0 : i / width * 2 * width + i % width + (second ? width : 0));
  };
  OpResult result;
  result.y = filled(dy.shape(), [&](Index i) { return function(f, at(i, false)) * at(i, true); });
  result.gradients = {filled(x.shape(), [&](Index i) {
    const Index row = i / (2 * width), column = i % (2 * width), j = row * width + column % width;
    return column < width ? dy.at(j) * at(j, true) * derivative(f, at(j, false))
                          : dy.at(j) * function(f, at(j, false));
  })};
  return result;
}

Tensor plain(Unary f, const Tensor& x) {
  const Index width = x.size(-1) / 2;
  return unary(f, slice(x, -1, 0, width)) * slice(x, -1, width, width);
}

}  // namespace

TEST_SUITE("autograd/ops/gated") {
  TEST_CASE("two rows worked by hand: the first half gates the second") {
    const OpResult got =
        run_op([](const auto& in) { return gated(Unary::relu, in[0]); },
               {values({2, -1, 3, 4, 0.5, 6, -7, 8}, {2, 4})}, values({1, 10, 100, 1000}, {2, 2}));
    CHECK(got.y.to_vector<double>() == std::vector<double>{6, -0.0, -3.5, 48});
    CHECK(got.gradients[0].to_vector<double>() == std::vector<double>{3, 0, 2, 0, -700, 8000, 50, 6000});
  }

  TEST_CASE("values and gradients equal the formula at every width") {
    Generator random(test_seed(1));
    for (const Unary f : kGates) {
      CAPTURE(std::string(name_of(f)));
      for (const Index width : {1, 31, 32, 33, 257, 511, 512, 513}) {
        CAPTURE(width);
        const Tensor x = random_normal({2, 3, 2 * width}, random), dy = random_normal({2, 3, width}, random);
        check_op([&](const auto& in) { return gated(f, in[0]); }, {x}, dy, oracle(f, x, dy), 1e-9);
      }
    }
  }

  TEST_CASE("one row without leading axes, and nothing at all") {
    Generator random(test_seed(2));
    const Tensor x = random_normal({6}, random), dy = random_normal({3}, random);
    check_op([](const auto& in) { return gated(Unary::silu, in[0]); }, {x}, dy, oracle(Unary::silu, x, dy),
             1e-9);
    for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 4}}) {
      const Tensor empty = Tensor::zeros(shape, DType::f64);
      Shape half = shape;
      half.set(-1, shape[-1] / 2);
      const OpResult got = run_op([](const auto& in) { return gated(Unary::gelu, in[0]); }, {empty},
                                  Tensor::zeros(half, DType::f64));
      CHECK(got.y.shape() == half);
      CHECK(got.gradients[0].shape() == shape);
    }
  }

  TEST_CASE("the fused kernel gives the very bits of the plain operations") {
    Generator random(test_seed(3));
    for (const DType type : {DType::f32, DType::f64}) {
      for (const Unary f : kGates) {
        CAPTURE(std::string(name_of(f)));
        const Tensor x = random_normal({41, 2 * 513}, random, type),
                     dy = random_normal({41, 513}, random, type);
        const OpResult fused = run_op([&](const auto& in) { return gated(f, in[0]); }, {x}, dy);
        const OpResult expected = run_op([&](const auto& in) { return plain(f, in[0]); }, {x}, dy);
        CHECK(absolute_error(fused.y, expected.y) == 0);
        CHECK(absolute_error(fused.gradients[0], expected.gradients[0]) == 0);
      }
    }
  }

  TEST_CASE("the gradient is added to what another use has left") {
    Generator random(test_seed(4));
    const Tensor x = random_normal({5, 66}, random), dy = random_normal({5, 33}, random);
    const OpResult got =
        run_op([](const auto& in) { return gated(Unary::silu, in[0]) + gated(Unary::relu, in[0]); }, {x}, dy);
    const Tensor expected =
        add(oracle(Unary::silu, x, dy).gradients[0], oracle(Unary::relu, x, dy).gradients[0]);
    CHECK_BELOW(relative_error(got.gradients[0], expected), 1e-9);
  }

  TEST_CASE("gradients of both orders") {
    Generator random(test_seed(5));
    for (const Unary f : kGates) {
      if (f == Unary::sigmoid) continue;  // no layer's gate
      const Tensor x = random_normal({2, 3, 10}, random);
      check_both_orders(std::string("gated ") + name_of(f), [&] { return gated(f, x); }, {{"x", x}});
    }
  }

  TEST_CASE("golden values") {
    const Golden golden("fused");
    for (const Unary f : {Unary::relu, Unary::gelu, Unary::gelu_tanh, Unary::silu}) {
      const std::string name = std::string("gated_") + name_of(f);
      CAPTURE(name);
      const auto function = [&](const std::vector<Tensor>& in) { return gated(f, in[0]); };
      CHECK_BELOW(golden_error(golden, name, {"x"}, function), 1e-14);
      CHECK_BELOW(golden_error(golden, name, {"x"}, function, DType::f32), 1e-6);
    }
  }

  TEST_CASE("an axis without two halves is refused") {
    CHECK(message_of<ShapeError>([] {
            gated(Unary::silu, Tensor::zeros({2, 3}));
          }) == "[gated] the last axis must hold two halves of one size; got x=f32[2,3]");
    CHECK(message_of<ShapeError>([] { gated(Unary::silu, Tensor::scalar(1)); }) ==
          "[gated] the last axis must hold two halves of one size; got x=f32[]");
    CHECK(message_of<DTypeError>([] {
            gated(Unary::silu, Tensor::zeros({2, 4}, DType::i32));
          }).find("[gated] values must be f32 or f64") == 0);
  }
}
