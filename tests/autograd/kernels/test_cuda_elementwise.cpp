#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

constexpr Index kSizes[] = {1, 31, 32, 33, 257, 4099};

Tensor arguments(Unary f, const Shape& shape, Generator& random) {
  const bool needs_positive = f == Unary::log || f == Unary::sqrt;
  return random_uniform(shape, needs_positive ? 0.2 : -3, 3, random).to(Device::cpu());
}

/// `f`, which knows both devices, gives the same bits on both: in f32 and f64, and in bf16 what f32 gives,
/// rounded.
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
    if (is_floating(expected.dtype())) {
      CHECK(got.dtype() == type);
      CHECK(same_values(got, expected.to(type)));
    } else {
      CHECK(same_values(got, expected));
    }
  }
}

struct Pair {
  Shape a, b;
};
const Pair kPairs[] = {{{3, 5, 7}, {3, 5, 7}}, {{3, 5, 7}, {}},       {{7}, {3, 5, 7}},
                       {{3, 5, 7}, {5, 1}},    {{3, 1, 7}, {5, 1}},   {{2, 1, 3, 1}, {1, 4, 1, 5}},
                       {{257, 33}, {33}},      {{257, 1}, {257, 33}}, {{0}, {1}},
                       {{3, 0, 7}, {7}}};

}  // namespace

TEST_SUITE("autograd/kernels/cuda_elementwise") {
  TEST_CASE("bf16 functions and their gradients are as exact as bf16 allows") {
    Generator random(test_seed(1));
    for (const Unary f : kUnaries) {
      for (const Index n : kSizes) {
        CAPTURE(std::string(name_of(f)));
        CAPTURE(n);
        const Function function = [f](const auto& x) { return unary(f, x[0]); };
        const Tensor x = arguments(f, {n}, random), dy = host_normal({n}, random);
        check_bf16(function, {}, {x}, dy, n % 3);
      }
    }
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

  TEST_CASE("no gradient passes where relu is flat, not even a NaN") {
    for (const DType type : {DType::f32, DType::bf16}) {
      const Tensor x = on_gpu(values({0, -1, -2, 3}).to(type));
      const Tensor dy = on_gpu(values({1, INFINITY, NAN, 5}).to(type));
      const Tensor dx = with_gradients([](const auto& in) { return relu(in[0]); }, {x}, dy)[1];
      CHECK(readable(dx).to_vector<double>() == std::vector<double>{0, 0, 0, 5});
    }
  }

  TEST_CASE("arithmetic, choices and comparisons broadcast as on the CPU, bit by bit") {
    Generator random(test_seed(3));
    for (const Pair& shapes : kPairs) {
      INFO(shapes.a.text(), " ", shapes.b.text());
      const Tensor a = host_normal(shapes.a, random);
      const Tensor b = random_uniform(shapes.b, 0.5, 2, random).to(Device::cpu());
      const Tensor mask = random_mask(shapes.b, random).to(Device::cpu());
      const Tensor ones_a = affine(a, 0, 1), ones_b = affine(b, 0, 1);
      check_same([](const auto& x) { return x[0] + x[1]; }, {a, b}, 1);
      check_same([](const auto& x) { return x[0] - x[1]; }, {a, b});
      check_same([](const auto& x) { return x[0] * x[1]; }, {a, b}, 3);
      check_same([](const auto& x) { return x[0] / x[1]; }, {a, b});
      check_same([](const auto& x) { return where(x[2], x[0], x[1]); }, {a, b, mask}, 1);
      check_same([](const auto& x) { return masked_fill(x[0], x[1], -7); }, {a, mask});
      check_same([](const auto& x) { return equal(x[0], x[1]); }, {a, b});
      check_same([](const auto& x) { return equal(x[0], x[1]); }, {ones_a, ones_b});
      check_same([](const auto& x) { return logical_and(x[1], equal(x[0], x[0])); }, {a, mask});
    }
  }

  TEST_CASE("affine maps and powers of bf16 are computed in f32") {
    Generator random(test_seed(4));
    for (const Index n : kSizes) {
      const Tensor x = random_uniform({n}, 0.5, 2, random).to(Device::cpu()), dy = host_normal({n}, random);
      check_same([](const auto& in) { return affine(in[0], 0.25, 1); }, {x}, 1);
      const Function cube = [](const auto& in) { return pow(in[0], 3); };
      check_bf16(cube, {}, {x}, dy, 1);
      check_bf16([](const auto& in) { return affine(in[0], 1.0009765625, -0.3); }, {}, {x}, dy);
    }
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

  TEST_CASE("copies are as on the CPU, bit by bit") {
    Generator random(test_seed(6));
    const Tensor x = host_normal({3, 5, 7, 11}, random), y = host_normal({3, 2, 7, 11}, random);
    check_same([](const auto& in) { return permute(in[0], {2, 0, 3, 1}); }, {x}, 1);
    check_same([](const auto& in) { return transpose(in[0]); }, {x});
    check_same([](const auto& in) { return concat({in[0], in[1]}, 1); }, {x, y}, 3);
    check_same([](const auto& in) { return slice(in[0], 2, 3, 3); }, {x}, 1);
    check_same([](const auto& in) { return pad(in[0], 3, 2, 17); }, {x}, 1);
    check_same(
        [](const auto& in) {
          return broadcast_to(in[0], {4, 257, 7});
        },
        {host_normal({257, 1}, random)});
  }

  TEST_CASE("gathering picks, and its gradient adds in f32, in order") {
    Generator random(test_seed(7));
    const Tensor index = Tensor::empty({2, 4099, 3}, DType::i32, Device::cpu());
    for (Index i = 0; i < index.elements(); ++i)
      index.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(6));
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

  TEST_CASE("elements beyond what one grid covers are reached") {
    if (fewer_if_sanitized(4) < 4) return;
    const Tensor x = Tensor::full({Index{65536} * 256 + 300}, 1, DType::boolean, Device::cuda());
    const std::vector<bool> read = x.to_vector<bool>();
    CHECK(std::count(read.begin(), read.end(), true) == x.elements());
  }

  TEST_CASE("the first value that is not finite is found in bf16 too") {
    const Tensor x = Tensor::full({4099}, 1, DType::f32, Device::cpu());
    x.data<float>()[4000] = x.data<float>()[77] = 0;
    const Tensor there = on_gpu(x.to(DType::bf16));
    Tape tape;
    tape.detect_anomalies();
    tape.watch(there);
    CHECK(affine(there, 2, 1).at(77) == 1);
    CHECK(message_of<TapeError>([&] { return pow(there, -1); })
              .rfind("[pow] forward gave the first value that is not finite: inf at element 77 of bf16[4099]",
                     0) == 0);
  }

  TEST_CASE("operands on two devices are refused") {
    const Tensor here = Tensor::zeros({2}, DType::f32, Device::cpu());
    const Tensor there = Tensor::zeros({2}, DType::f32, Device::cuda());
    const Tensor mask = Tensor::zeros({2}, DType::boolean, Device::cpu());
    CHECK(message_of<DeviceError>([&] {
            return here + there;
          }).rfind("[add] all operands must be on one", 0) == 0);
    CHECK(message_of<DeviceError>([&] { return masked_fill(there, mask, 0); }) ==
          "[where] condition must be on the device of the values; got condition=bool[2] on cpu, values=f32[] "
          "on cuda:0; try condition.to(Device)");
    CHECK(message_of<DeviceError>([&] {
            return logical_and(mask, mask.to(Device::cuda()));
          }).rfind("[logical_and] b must be on the device", 0) == 0);
    CHECK(message_of<DeviceError>([&] {
            return gather(there, 0, mask.to(DType::i32));
          }).rfind("[gather] index must be on the device", 0) == 0);
  }
}
