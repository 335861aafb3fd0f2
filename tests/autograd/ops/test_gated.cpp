#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/rounding.h>

#include <cmath>

using namespace tapeformer;

namespace {

constexpr Unary kGates[] = {Unary::relu, Unary::gelu, Unary::gelu_tanh, Unary::silu, Unary::sigmoid};

Tensor plain(Unary f, const Tensor& x) {
  const Index width = x.size(-1) / 2;
  return unary(f, slice(x, -1, 0, width)) * slice(x, -1, width, width);
}

}  // namespace

TEST_CASE("two rows worked by hand: the first half gates the second") {
  const OpResult got =
      run_op([](const auto& in) { return gated(Unary::relu, in[0]); },
             {values({2, -1, 3, 4, 0.5, 6, -7, 8}, {2, 4})}, values({1, 10, 100, 1000}, {2, 2}));
  CHECK(got.y.to_vector<double>() == std::vector<double>{6, -0.0, -3.5, 48});
  CHECK(got.gradients[0].to_vector<double>() == std::vector<double>{3, 0, 2, 0, -700, 8000, 50, 6000});
}

TEST_CASE("the fused kernel gives the very bits of the plain operations at every width") {
  Generator random(test_seed(3));
  for (const DType type : {DType::f32, DType::f64}) {
    for (const Unary f : kGates) {
      CAPTURE(std::string(name_of(f)));
      for (const Shape& half : {Shape{3}, Shape{41, 1}, Shape{2, 3, 32}, Shape{5, 257}, Shape{41, 513},
                                Shape{0, 2}, Shape{3, 0}}) {
        CAPTURE(half.text());
        Shape shape = half;
        shape.set(-1, 2 * half[-1]);
        const Tensor x = random_normal(shape, random, type), dy = random_normal(half, random, type);
        const Op fused = [&](const auto&in) { return gated(f, in[0]) + gated(f, in[0]); },
                 apart = [&](const auto&in) { return plain(f, in[0]) + plain(f, in[0]); };
        const OpResult got = run_op(fused, {x}, dy), expected = run_op(apart, {x}, dy);
        CHECK(absolute_error(got.y, expected.y) == 0);
        CHECK(absolute_error(got.gradients[0], expected.gradients[0]) == 0);
      }
    }
  }
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(5));
  for (const Unary f : kGates) {
    if (f == Unary::sigmoid) continue;  // no layer's gate
    const Tensor x = random_normal({2, 3, 10}, random);
    check_both_orders(std::string("gated ") + name_of(f), [&] { return gated(f, x); }, {{"x", x}});
  }
}

TEST_CASE("halves within a limit worked by hand, and their gradients") {
  // Per row: a beyond the limit and b below it, a far below it, both on their bounds.
  const Tensor x = values({5, -3, -4, 1.5, 2, 2}, {3, 2}), dy = values({1, 10, 100}, {3, 1});
  const OpResult got = run_op([](const auto& in) { return gated_within(2, 1.5, in[0]); }, {x}, dy);
  const auto gate = [](double a) { return a / (1 + std::exp(-1.5 * a)); };
  const auto slope = [](double a) {
    const double s = 1 / (1 + std::exp(-1.5 * a));
    return s * (1 + 1.5 * a * (1 - s));
  };
  CHECK_BELOW(relative_error(got.y, values({-gate(2), 2.5 * gate(-4), 3 * gate(2)}, {3, 1})), kFewRoundings);
  const Tensor expected =
      values({0, 0, 10 * 2.5 * slope(-4), 10 * gate(-4), 100 * 3 * slope(2), 100 * gate(2)}, {3, 2});
  CHECK_BELOW(relative_error(got.gradients[0], expected), 1e-14);
  const auto in_f32 = [](double a, double b) {
    return gated_within(2, 1.5, values({a, b}).to(DType::f32)).item();
  };
  CHECK(in_f32(1e10, -1e20) == in_f32(2, -2));
  CHECK(in_f32(kInfinity, 515) == in_f32(2, 2));
  CHECK(std::isnan(in_f32(kNan, 1)));
  CHECK(std::isnan(in_f32(1, kNan)));
  Generator random(test_seed(6));
  const Tensor z = random_normal({3, 8}, random);  // within a limit of 9, and around one of none
  const Tensor a = slice(z, 1, 0, 4), b = slice(z, 1, 4, 4);
  CHECK(absolute_error(gated_within(9, 1, z), (b + 1) * a * sigmoid(a * 1)) == 0);
  check_both_orders("gated_within", [&] { return gated_within(9, 1.702, z); }, {{"x", z}});
  CHECK(message_of<ShapeError>([] {
          gated_within(1, 1, Tensor::zeros({2, 3}));
        }) == "[gated_within] the last axis must hold two halves of equal size; got x=f32[2,3]");
}

TEST_CASE("golden values") {
  const Golden golden("fused");
  for (const Unary f : {Unary::relu, Unary::gelu, Unary::gelu_tanh, Unary::silu}) {
    const auto function = [&](const std::vector<Tensor>& in) { return gated(f, in[0]); };
    check_golden(golden, std::string("gated_") + name_of(f), {"x"}, function, 1e-14, 1e-6);
  }
}

TEST_CASE("an axis without two halves is refused") {
  CHECK(message_of<ShapeError>([] {
          gated(Unary::silu, Tensor::zeros({2, 3}));
        }) == "[gated] the last axis must hold two halves of equal size; got x=f32[2,3]");
  CHECK(message_of<ShapeError>([] { gated(Unary::silu, Tensor::scalar(1)); }) ==
        "[gated] the last axis must hold two halves of equal size; got x=f32[]");
  CHECK_THROWS_WITH_AS(gated(Unary::silu, Tensor::zeros({2, 4}, DType::i32)),
                       doctest::Contains("[gated] values must be floating-point numbers"), DTypeError);
}
