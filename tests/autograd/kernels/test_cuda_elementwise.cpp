#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

#include <cmath>

using namespace tapeformer;

namespace {

Tensor arguments(Unary f, const Shape& shape, Generator& random) {
  const bool needs_positive = f == Unary::log || f == Unary::sqrt;
  return random_uniform(shape, needs_positive ? 0.2 : -3, 3, random).to(Device::cpu());
}

/// `f` gives the same bits on both devices: in f32 and f64, and in bf16 what f32 gives, rounded.
void check_same(const Function& f, const std::vector<Tensor>& x, Index shift = 0) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
    CAPTURE(name_of(type));
    std::vector<Tensor> here, there;
    for (const Tensor& input : x) {
      const Tensor rounded = is_floating(input.dtype()) ? input.to(type) : input;
      there.push_back(on_gpu(rounded, shift));
      here.push_back(is_floating(input.dtype()) ? rounded.to(wide(type)) : input);
    }
    const Tensor got = f(there), expected = f(here);
    CHECK(got.device() == Device::cuda());
    CHECK(got.dtype() == type);
    CHECK(same_values(got, expected.to(type)));
  }
}

}  // namespace

TEST_CASE("bf16 functions and their gradients are as exact as bf16 allows") {
  Generator random(test_seed(1));
  for (const Unary f : kUnaries) {
    for (const Index n : {1, 33, 257, 4099}) {
      CAPTURE(std::string(name_of(f)));
      CAPTURE(n);
      const Function function = [f](const auto& x) { return unary(f, x[0]); };
      const Tensor x = arguments(f, {n}, random), dy = host_normal({n}, random);
      check_bf16(function, {}, {x}, dy, n % 3);
    }
  }
  const Tensor x = random_uniform({257}, 0.5, 2, random).to(Device::cpu()), dy = host_normal({257}, random);
  check_bf16([](const auto& in) { return pow(in[0], 3); }, {}, {x}, dy, 1);
  check_bf16([](const auto& in) { return affine(in[0], 1.0009765625, -0.3); }, {}, {x}, dy);
}

TEST_CASE("the lower tail of gelu keeps its digits") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor x = on_gpu(values({-3, -6, -9}).to(Device::cpu()).to(type));
    const std::vector<Tensor> got = with_gradients([](const auto& in) { return gelu(in[0]); }, {x},
                                                   Tensor::full({3}, 1, type, Device::cuda()));
    for (Index i = 0; i < 3; ++i) {
      const double at = -3. * static_cast<double>(i + 1), below = 0.5 * std::erfc(-at * M_SQRT1_2);
      const double density = std::exp(-0.5 * at * at) / std::sqrt(2 * M_PI);
      const double most = type == DType::f32 ? 2e-5 : 1e-13;
      CHECK_BELOW(std::fabs(got[0].at(i) / (at * below) - 1), most);
      CHECK_BELOW(std::fabs(got[1].at(i) / (below + at * density) - 1), most);
    }
  }
}

TEST_CASE("a NaN stays one through every function in bf16") {
  const Tensor x = Tensor::full({33}, NAN, DType::bf16, Device::cuda());
  for (const Unary f : kUnaries) CHECK(std::isnan(unary(f, x).at(32)));
}

TEST_CASE("gated units and their gradients in bf16, at odd widths") {
  Generator random(test_seed(5));
  for (const Unary f : {Unary::sigmoid, Unary::relu, Unary::gelu, Unary::silu, Unary::tanh}) {
    for (const Index width : {1, 31, 33, 257}) {
      CAPTURE(std::string(name_of(f)));
      CAPTURE(width);
      const Tensor both = host_normal({5, 2 * width}, random), dy = host_normal({5, width}, random);
      check_bf16([f](const auto& x) { return gated(f, x[0]); },
                 [f, width](const auto& x) {
                   return unary(f, slice(x[0], -1, 0, width)) * slice(x[0], -1, width, width);
                 },
                 {both}, dy, 1);
    }
  }
}

TEST_CASE("gathering picks, and its gradient adds in f32, in order") {
  Generator random(test_seed(7));
  const Tensor index = random_ids({2, 4099, 3}, 6, random).to(Device::cpu());
  const Tensor x = host_normal({2, 7, 3}, random);
  check_same([](const auto& in) { return gather(in[0], 1, in[1]); }, {x, index}, 1);
  const Tensor few = slice(x, 1, 0, 5), picks = slice(index.to(DType::f64), 1, 0, 5).to(DType::i32);
  check_same([](const auto& in) { return scatter_add(in[0], 1, in[1], 6); }, {few, picks}, 1);
  const Tensor ones = Tensor::full({2, 4099, 3}, 1, DType::f64, Device::cpu());
  check_same([](const auto& in) { return scatter_add(in[0], 1, in[1], 6); }, {ones, index});
}

TEST_CASE("every type converts into every other as on the CPU") {
  const Tensor x =
      values({0, 1, -1, 0.5, 3.75, 257, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 16777217, -100, 0.1}).to(Device::cpu());
  const DType types[] = {DType::f32, DType::f64, DType::bf16, DType::i32, DType::boolean};
  for (const DType from : types) {
    for (const DType to : types) {
      CAPTURE(name_of(from));
      CAPTURE(name_of(to));
      const Tensor start = x.to(from), got = on_gpu(start, 1).to(to);
      CHECK(got.device() == Device::cuda());
      CHECK(got.dtype() == to);
      CHECK(same_values(got, start.to(to)));
    }
    CHECK(same_values(Tensor::full({33}, 2.5, from, Device::cuda()),
                      Tensor::full({33}, 2.5, from, Device::cpu())));
  }
  CHECK(std::isnan(Tensor::full({1}, NAN, DType::f32, Device::cuda()).to(DType::bf16).item()));
  CHECK(Tensor::full({1}, NAN, DType::f32, Device::cuda()).to(DType::boolean).item() == 1);
}
