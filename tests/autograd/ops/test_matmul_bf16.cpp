#include <doctest/doctest.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

namespace {

Tensor narrow(const Tensor& x) { return x.to(DType::bf16).to(Device::cuda(0)); }
Tensor widened(const Tensor& x) { return x.to(Device::cpu()).to(DType::f64); }

/// The error of a product of factors and a result in bf16 with sums in f32.
double naive_error(const Tensor& a, const Tensor& b, const Tensor& exact) {
  const Index m = a.size(0), k = a.size(1), n = b.size(1);
  const auto at = [](const Tensor& x, Index i) { return static_cast<float>(BFloat16(x.at(i))); };
  const Tensor sums = filled({m, n}, [&](Index i) {
    float sum = 0;
    for (Index j = 0; j < k; ++j) sum += at(a, i / n * k + j) * at(b, j * n + i % n);
    return static_cast<double>(sum);
  });
  return relative_error(widened(sums.to(DType::bf16)), exact);
}

}  // namespace

TEST_CASE("products are as good as their storage allows") {
  Generator random(test_seed(1));
  for (const Index size : {1, 31, 32, 33, 257}) {
    const Tensor a = random_normal({size, 65}, random), b = random_normal({65, 18}, random);
    const Tensor y = matmul(narrow(a), narrow(b)), exact = widened(matmul(a, b));
    CHECK(y.dtype() == DType::bf16);
    CHECK_BELOW(relative_error(widened(y), exact), 2 * naive_error(a, b, exact));
    const Tensor flipped = matmul(transposed(narrow(transpose(a))), transposed(narrow(transpose(b))));
    CHECK(flipped.to_vector<BFloat16>().size() == y.to_vector<BFloat16>().size());
    CHECK_BELOW(relative_error(widened(flipped), widened(y)), 0.01);
  }
}

TEST_CASE("stacks, by head, keep to their own matrices") {
  Generator random(test_seed(2));
  const Tensor a = random_normal({2, 5, 3, 7}, random), b = random_normal({2, 6, 1, 7}, random);
  const Tensor y = matmul(by_head(narrow(a)), transposed(by_head(narrow(b))), 0.5, true);
  CHECK_BELOW(relative_error(widened(y), widened(matmul(by_head(a), transposed(by_head(b)), 0.5, true))),
              0.02);
}

TEST_CASE("an affine map's gradients: x and the bias in bf16's error, weights summed and kept in f32") {
  Generator random(test_seed(3));
  const Tensor x = random_normal({40, 33}, random), w = random_normal({21, 33}, random),
               bias = random_normal({21}, random), dy = random_normal({40, 21}, random);
  const auto fused = [](const Parameter& input, const Parameter& weight, const Parameter& offset) {
    return linear(input, weight, offset, Unary::silu);
  };
  const auto plain = [](const Parameter& input, const Parameter& weight, const Parameter& offset) {
    return unary(Unary::silu, matmul(input, transposed(weight)) + offset);
  };
  // y and the gradients of x, weight and bias.
  const auto in_bf16 = [&](const auto& map) {
    Parameter input(narrow(x)), weight(w.to(DType::f32).to(Device::cuda(0))),
        offset(bias.to(DType::f32).to(Device::cuda(0)));
    weight.set_shadow(DType::bf16);
    offset.set_shadow(DType::bf16);
    Tape tape;
    const Tensor y = map(input, weight, offset);
    CHECK(y.dtype() == DType::bf16);
    tape.backward(y, narrow(dy));
    CHECK(weight.gradient().dtype() == DType::f32);
    CHECK(offset.gradient().dtype() == DType::f32);
    return std::vector<Tensor>{y, input.gradient(), weight.gradient(), offset.gradient()};
  };
  const Parameter input(x), weight(w), offset(bias);
  Tape tape;
  const Tensor y = fused(input, weight, offset);
  tape.backward(y, dy);
  const std::vector<Tensor> exact = {y, input.gradient(), weight.gradient(), offset.gradient()};
  const std::vector<Tensor> got = in_bf16(fused), naive = in_bf16(plain);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CAPTURE(i);
    const Tensor expected = widened(exact[i]);
    CHECK_BELOW(relative_error(widened(got[i]), expected),
                (i == 0 ? 2 : 3) * relative_error(widened(naive[i]), expected));
  }
}

TEST_CASE("a weight's gradient is not rounded to bf16") {
  Generator random(test_seed(4));
  const Tensor x = random_normal({300, 5}, random), dy = random_normal({300, 4}, random);
  Parameter weight(random_normal({4, 5}, random).to(DType::f32).to(Device::cuda(0)));
  weight.set_shadow(DType::bf16);
  Tape tape;
  tape.backward(linear(narrow(x), weight), narrow(dy));
  const Tensor rounded_x = x.to(DType::bf16).to(DType::f64), rounded_dy = dy.to(DType::bf16).to(DType::f64);
  CHECK_BELOW(relative_error(widened(weight.gradient()), widened(matmul(transposed(rounded_dy), rounded_x))),
              2e-6);
}

TEST_CASE("tf32 rounds the factors and nothing else") {
  Generator random(test_seed(5));
  const Tensor a = random_normal({33, 65}, random).to(DType::f32).to(Device::cuda(0)),
               b = random_normal({65, 18}, random).to(DType::f32).to(Device::cuda(0));
  const Tensor exact = widened(matmul(widened(a), widened(b)));
  const double strict = relative_error(widened(matmul(a, b)), exact);
  set_matmul_precision(MatmulPrecision::tf32);
  const double rounded = relative_error(widened(matmul(a, b)), exact);
  set_matmul_precision(MatmulPrecision::f32);
  CHECK_BELOW(strict, 2e-6);
  CHECK(rounded > 10 * strict);
  CHECK_BELOW(rounded, 2e-3);
}
