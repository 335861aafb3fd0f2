#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/ops/dropout.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <algorithm>
#include <cmath>

// Kernels must do the same in accesses of 16 bytes as element by element: sizes that packs divide and that
// they do not, addresses that are aligned and that are not.
using namespace tapeformer;

namespace {

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16};

/// f(x) and its gradients are the same bits at aligned addresses, at others, and on the CPU, where bf16 is
/// f32, rounded in the end.
void check_packs(const Function& f, const std::vector<Tensor>& x, const Tensor& dy) {
  for (const DType type : kTypes) {
    CAPTURE(name_of(type));
    std::vector<Tensor> here;
    for (const Tensor& input : x)
      here.push_back(is_floating(input.dtype()) ? input.to(type).to(wide(type)) : input);
    const Tensor seed = dy.to(type);
    const std::vector<Tensor> expected = with_gradients(f, here, seed.to(wide(type)));
    for (const Index shift : {0, 1}) {
      CAPTURE(shift);
      std::vector<Tensor> there;
      for (const Tensor& input : x)
        there.push_back(on_gpu(is_floating(input.dtype()) ? input.to(type) : input, shift));
      const std::vector<Tensor> got = with_gradients(f, there, on_gpu(seed, shift));
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(same_values(got[i], expected[i].to(type)));
    }
  }
}

Tensor arguments(Unary f, const Shape& shape, Generator& random) {
  const bool needs_positive = f == Unary::log || f == Unary::sqrt;
  return host_uniform(shape, needs_positive ? 0.2 : -3, 3, random);
}

}  // namespace

TEST_CASE("operands of every broadcast that packs take, and of some they do not") {
  Generator random(test_seed(1));
  struct Pair {
    Shape a, b;
  };
  const Pair pairs[] = {{{7, 48}, {7, 48}},
                        {{7, 48}, {48}},
                        {{48}, {7, 48}},
                        {{7, 48}, {7, 1}},
                        {{7, 1}, {7, 48}},
                        {{7, 48}, {}},
                        {{}, {1003}},
                        {{1003}, {}},
                        {{7, 50}, {50}},
                        {{2, 3, 16}, {3, 16}},
                        {{2, 3, 16}, {2, 1, 16}},
                        {{3, 1, 16}, {5, 1}},
                        {{2, 1, 20}, {5, 20}},
                        {{2, 1, 3, 1}, {1, 4, 1, 5}},
                        {{257, 1}, {257, 33}},
                        {{0}, {1}},
                        {{3, 0, 7}, {7}}};
  for (const Pair& shapes : pairs) {
    INFO(shapes.a.text(), " ", shapes.b.text());
    const Tensor a = whole(shapes.a, random), b = whole(shapes.b, random);
    const Tensor dy = whole((a + b).shape(), random);
    const Tensor mask = random_mask(shapes.b, random).to(Device::cpu());
    check_packs([](const auto& x) { return x[0] + x[1]; }, {a, b}, dy);
    check_packs([](const auto& x) { return x[0] - x[1]; }, {a, b}, dy);
    check_packs([](const auto& x) { return x[0] * x[1]; }, {a, b}, dy);
    const Function choose = [&](const auto& x) { return where(mask.to(x[0].device()), x[0], x[1]); };
    check_packs(choose, {a, b}, dy);
  }
}

TEST_CASE("sizes around those of packs and of what a grid takes at once") {
  Generator random(test_seed(2));
  for (const Index n : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 4096, 4103}) {
    CAPTURE(n);
    const Tensor x = whole({n}, random), dy = whole({n}, random);
    check_packs([](const auto& in) { return relu(in[0]); }, {x}, dy);
    check_packs([](const auto& in) { return affine(in[0], 0.5, 1); }, {x}, dy);
    check_packs([](const auto& in) { return in[0] + in[0]; }, {x}, dy);  // the second gradient is added
  }
}

TEST_CASE("more elements than a grid takes at once: two packs per thread, and then more") {
  if (tries_few()) return;
  for (const Index packs : {2, 3}) {
    const Tensor x = Tensor::full({Index{2048} * 256 * 4 * packs + 77}, 3, DType::f32, Device::cuda());
    const std::vector<float> twice = (x + x).to_vector<float>(), more = affine(x, 1, 4).to_vector<float>();
    CHECK(std::count(twice.begin(), twice.end(), 6) == x.elements());
    CHECK(std::count(more.begin(), more.end(), 7) == x.elements());
  }
}

TEST_CASE("gated units of widths that packs divide, and whose gradients are added") {
  Generator random(test_seed(3));
  for (const Index width : {8, 48, 50, 264}) {
    CAPTURE(width);
    const Tensor x = whole({5, 2 * width}, random), dy = whole({5, width}, random);
    check_packs([](const auto& in) { return gated(Unary::relu, in[0]); }, {x}, dy);
    check_packs([](const auto& in) { return gated(Unary::relu, in[0]) + gated(Unary::relu, in[0]); }, {x},
                dy);
  }
}

TEST_CASE("dropout in packs: the CPU's elements, forward and backward, added too") {
  Generator random(test_seed(4));
  for (const Index n : {0, 1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 131, 1024, 5000, 40001}) {
    CAPTURE(n);
    const Tensor x = whole({n}, random), dy = whole({n}, random);
    const DropoutKey key{7, static_cast<std::uint64_t>(n), 3};
    check_packs([&](const auto& in) { return dropout(in[0], 0.1, key); }, {x}, dy);
    check_packs([&](const auto& in) { return dropout(in[0], 0.5, key) + in[0]; }, {x}, dy);
  }
}

TEST_CASE("sums of rows and columns that packs divide or do not, in parts and not") {
  Generator random(test_seed(5));
  for (const Shape& shape :
       {Shape{2, 1, 1},    Shape{2, 32, 31},   Shape{2, 33, 65},   Shape{2, 257, 2},    Shape{2, 4099, 33},
        Shape{3, 8191, 1}, Shape{1, 1027, 40}, Shape{5, 777, 3},   Shape{1, 70001, 1},  Shape{3, 64, 1},
        Shape{3, 67, 1},   Shape{1, 20000, 1}, Shape{2, 9001, 1},  Shape{5, 2048, 1},   Shape{1, 9, 8},
        Shape{2, 33, 16},  Shape{1, 700, 24},  Shape{1, 3000, 72}, Shape{2, 1500, 264}, Shape{1, 1000, 30},
        Shape{0, 4, 8},    Shape{2, 0, 8},     Shape{2, 0, 1}}) {
    CAPTURE(shape.text());
    const Tensor x = whole(shape, random);
    for (const DType type : kTypes) {
      for (const Index shift : {0, 1}) {
        const Tensor there = on_gpu(x.to(type), shift);
        CHECK(same_values(sum(there, {1}), sum(x.to(wide(type)), {1}).to(type)));
      }
    }
  }
}

TEST_CASE("copies in packs and not") {
  Generator random(test_seed(6));
  for (const Index n : {16, 18, 20}) {
    const Tensor x = whole({3, 5, n}, random), y = whole({3, 2, n}, random);
    const Tensor turned = whole({5, 3, n}, random), back = whole({n, 5, 3}, random);
    check_packs([](const auto& in) { return permute(in[0], {1, 0, 2}); }, {x}, turned);
    check_packs([](const auto& in) { return permute(in[0], {2, 1, 0}); }, {x}, back);
    check_packs([](const auto& in) { return concat({in[0], in[1]}, 1); }, {x, y}, whole({3, 7, n}, random));
    check_packs([&](const auto& in) { return slice(in[0], 2, n - 8, 8); }, {x}, whole({3, 5, 8}, random));
    check_packs([&](const auto& in) { return slice(in[0], 2, 8, n - 8); }, {x}, whole({3, 5, n - 8}, random));
    const Tensor narrow = whole({4, 1, n}, random), wide = whole({4, 5, n}, random);
    check_packs([&](const auto& in) { return broadcast_to(in[0], {4, 5, n}); }, {narrow}, wide);
  }
}

TEST_CASE("fills and conversions of every type into every other reach every element and no other") {
  const double numbers[] = {0, 1, -1, 0.5, 3.75, 257, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 16777217, -100, 0.1};
  const DType types[] = {DType::f32, DType::f64, DType::bf16, DType::i32, DType::boolean};
  const auto begin_of = [](const Tensor& x) { return x.state()->storage->data; };
  for (const Index n : {1, 7, 16, 33}) {
    const auto check = [n](const Tensor& got, const Tensor& first) {
      const Tensor read = readable(got), expected = readable(first);
      for (Index i = 0; i < n + 16; ++i) CHECK(read.at(i) == (i < n ? expected.at(i) : 0));
    };
    for (const Index shift : {0, 1}) {
      for (const DType from : types) {
        CAPTURE(name_of(from));
        const auto zeros = [&](DType type) {
          return on_gpu(Tensor::zeros({n + 16}, type, Device::cpu()), shift);
        };
        const Tensor same = zeros(from);
        cuda::fill(0, from, n, 2.5, begin_of(same));
        check(same, Tensor::full({n}, 2.5, from, Device::cpu()));
        const Tensor x = filled({n}, [&](Index i) { return numbers[i % 11]; }).to(Device::cpu()).to(from),
                     there = on_gpu(x, shift);
        for (const DType to : types) {
          CAPTURE(name_of(to));
          const Tensor other = zeros(to);
          cuda::convert(0, from, begin_of(there), to, begin_of(other), n);
          check(other, x.to(to));
        }
      }
    }
  }
  CHECK(std::isnan(Tensor::full({1}, NAN, DType::f32, Device::cuda()).to(DType::bf16).item()));
  CHECK(Tensor::full({1}, NAN, DType::f32, Device::cuda()).to(DType::boolean).item() == 1);
}

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
  const Tensor x = host_uniform({257}, 0.5, 2, random), dy = host_normal({257}, random);
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
  const Function pick = [&](const auto& in) { return gather(in[0], 1, index.to(in[0].device())); };
  check_packs(pick, {host_normal({2, 7, 3}, random)},
              Tensor::full({2, 4099, 3}, 1, DType::f64, Device::cpu()));
  const Tensor picks = slice(index.to(DType::f64), 1, 0, 5).to(DType::i32);
  const Function add_up = [&](const auto& in) { return scatter_add(in[0], 1, picks.to(in[0].device()), 6); };
  check_packs(add_up, {host_normal({2, 5, 3}, random)}, host_normal({2, 6, 3}, random));
}
