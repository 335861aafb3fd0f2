#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

#include <cmath>
#include <optional>

using namespace tapeformer;

namespace {

const std::optional<Unary> kActivations[] = {std::nullopt,     Unary::relu, Unary::gelu,
                                             Unary::gelu_tanh, Unary::silu, Unary::tanh};
// Rows, inputs, outputs: what an epilogue wants, what packs want but not the library, and neither.
constexpr Index kProductSizes[][3] = {{40, 16, 24}, {7, 8, 136}, {33, 10, 21}, {1, 1, 1}};

Function linear_with(std::optional<Unary> activation) {
  return [activation](const std::vector<Tensor>& in) {
    return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), activation);
  };
}
Function plain_linear_with(std::optional<Unary> activation) {
  return [activation](const std::vector<Tensor>& in) {
    Tensor y = matmul(in[0], transposed(in[1]));
    if (in.size() > 2) y = y + in[2];
    return activation ? unary(*activation, y) : y;
  };
}

}  // namespace

TEST_CASE("an affine map is the CPU's, with and without work in the product's epilogue") {
  Generator random(test_seed(1));
  for (const auto& size : kProductSizes) {
    const Index rows = size[0], in = size[1], out = size[2];
    for (const std::optional<Unary>& activation : kActivations) {
      for (const bool biased : {false, true}) {
        for (const Index shift : {0, 1}) {
          CAPTURE(rows);
          CAPTURE(biased);
          CAPTURE(shift);
          std::vector<Tensor> x{host_normal({rows, in}, random), host_normal({out, in}, random)};
          if (biased) x.push_back(host_normal({out}, random));
          const Tensor dy = host_normal({rows, out}, random);
          const auto expected = with_gradients(linear_with(activation), x, dy);
          for (const DType type : {DType::f32, DType::f64}) {
            const std::vector<Tensor> there = on_gpu(x, type, shift);
            const auto got = with_gradients(linear_with(activation), there, on_gpu(dy.to(type), shift));
            CHECK_BELOW(absolute_error(readable(linear_with(activation)(there)), readable(got[0])), 1e-5);
            check_near(got, expected, type == DType::f64 ? 1e-12 : 3e-5, absolute_error);
          }
          // The error of a single number is a matter of chance.
          if (rows > 1) check_bf16(linear_with(activation), plain_linear_with(activation), x, dy, shift);
        }
      }
    }
  }
}

TEST_CASE("a bias is added before the result is rounded") {
  // 257 is not a bf16: rounded first, 256 - 256 would be left.
  const auto full = [](const Shape& shape, double value) {
    return on_gpu(Tensor::full(shape, value, DType::bf16, Device::cpu()));
  };
  const Tensor x = on_gpu(filled({1, 8}, [](Index i) {
                            return i == 0 ? 256.0 : i == 1 ? 1.0 : 0.0;
                          }).to(DType::bf16));
  for (const auto activation : {std::optional<Unary>(), std::optional<Unary>(Unary::relu)})
    CHECK(linear(x, full({8, 8}, 1), full({8}, -256), activation).at(3) == 1);
}

TEST_CASE("activations of bf16 numbers are rounded once, their slopes are as good") {
  std::vector<double> at{0, 1e-30, -1e-30, 1e-4, -1e-4, 20, -20};
  for (double x = -9; x < 9; x += 1.0 / 32) at.push_back(x);
  at.resize(at.size() / 8 * 8);
  const Index rows = static_cast<Index>(at.size() / 8);
  const Tensor x = filled({rows, 8}, [&](Index i) { return at[static_cast<std::size_t>(i)]; })
                       .to(Device::cpu())
                       .to(DType::bf16);
  const Tensor one = filled({8, 8}, [](Index i) { return i % 9 == 0 ? 1.0 : 0.0; }).to(Device::cpu());
  const Tensor dy = Tensor::full({rows, 8}, 1, DType::f64, Device::cpu());
  for (const Unary f : {Unary::gelu, Unary::gelu_tanh, Unary::silu}) {
    const auto expected = with_gradients(linear_with(f), {readable(x), one}, dy);
    // With no bias: its epilogue takes the library's tanh.
    const auto got =
        with_gradients(linear_with(f), {on_gpu(x), on_gpu(one.to(DType::bf16))}, on_gpu(dy.to(DType::bf16)));
    const Tensor y = readable(got[0]), dx = readable(got[1]);
    for (Index i = 0; i < x.elements(); ++i) {
      const double exact = expected[0].at(i);
      CAPTURE(readable(x).at(i));
      CHECK_BELOW(std::abs(y.at(i) - exact), 1.02 * 0x1p-8 * std::abs(exact) + 1e-15);
      CHECK_BELOW(std::abs(dx.at(i) - expected[1].at(i)), 1.02 * 0x1p-8 * std::abs(expected[1].at(i)) + 2e-5);
    }
  }
}

TEST_CASE("a bias' gradient over many rows, in parts, by itself and with the slopes of an activation") {
  Generator random(test_seed(4));
  for (const Index out : {1, 8, 21, 264}) {
    for (const Index rows : {1, 63, 700, 4200}) {
      const Tensor dy = host_normal({rows, out}, random).to(DType::bf16), x = host_normal({rows, 1}, random);
      const Tensor weight = on_gpu(Tensor::zeros({out, 1}, DType::bf16, Device::cpu()));
      for (const auto activation : {std::optional<Unary>(), std::optional<Unary>(Unary::silu)}) {
        CAPTURE(out);
        CAPTURE(rows);
        CAPTURE(activation.has_value());
        Parameter bias(on_gpu(Tensor::zeros({out}, DType::f32, Device::cpu())));
        bias.set_shadow(DType::bf16);
        const double slope = activation ? 0.5 : 1;  // at 0
        for (int times = 1; times <= 2; ++times) {
          Tape tape;
          tape.backward(linear(on_gpu(x.to(DType::bf16)), weight, bias.used(), activation), on_gpu(dy));
          const Tensor expected = affine(sum_to(readable(dy), {out}), times * slope, 0);
          CHECK_BELOW(absolute_error(readable(bias.gradient()), expected), 1e-5 * std::sqrt(double(rows)));
        }
      }
    }
  }
}

TEST_CASE("stacks whose second factor repeats, along axes that merge into rows and along others") {
  Generator random(test_seed(5));
  const auto check = [&](const Factor& a, const Factor& b, bool output_by_head = false) {
    const auto there = [](Factor factor) {
      factor.x = on_gpu(factor.x);
      return factor;
    };
    const Tensor expected = matmul(a, b, 0.5, output_by_head);
    CHECK_BELOW(absolute_error(readable(matmul(there(a), there(b), 0.5, output_by_head)), expected), 1e-12);
  };
  const Tensor a = host_normal({2, 3, 4, 5}, random), shared = host_normal({1, 1, 5, 6}, random),
               of_heads = host_normal({1, 3, 5, 6}, random), of_rows = host_normal({2, 1, 5, 6}, random);
  check(a, shared);
  check(a, of_heads);
  check(a, of_rows);
  check(transposed(host_normal({2, 3, 5, 4}, random)), shared);
  check(by_head(a), host_normal({1, 4, 5, 6}, random));
  check(by_head(a), host_normal({1, 4, 5, 6}, random), true);
  check(a, shared, true);
}
