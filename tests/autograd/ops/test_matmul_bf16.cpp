#include <doctest/doctest.h>
#include <tapeformer/autograd/kernels/cuda.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

namespace {

/// The error that storing in bf16 and summing in f32 has by itself.
struct NaiveError {
  double narrow = 0, wide = 0;  // with a result in bf16, in f32
};
NaiveError naive_error(const Tensor& a, const Tensor& b, const Tensor& exact) {
  const Index m = a.size(0), k = a.size(1), n = b.size(1);
  const auto at = [](const Tensor& x, Index i) { return static_cast<float>(BFloat16(x.at(i))); };
  const Tensor sums = filled({m, n}, [&](Index i) {
    float sum = 0;
    for (Index j = 0; j < k; ++j) sum += at(a, i / n * k + j) * at(b, j * n + i % n);
    return static_cast<double>(sum);
  });
  return {relative_error(sums.to(DType::bf16).to(DType::f64), exact), relative_error(sums, exact)};
}

bool has_gpu() {
  if (cuda::device_count() > 0) return true;
  MESSAGE("skipped: ", cuda::availability());
  return false;
}
Tensor narrow(const Tensor& x) { return x.to(DType::bf16).to(Device::cuda(0)); }
Tensor widened(const Tensor& x) { return x.to(Device::cpu()).to(DType::f64); }

}  // namespace

TEST_SUITE("autograd/ops/matmul_bf16") {
  TEST_CASE("products are as good as their storage allows") {
    if (!has_gpu()) return;
    Generator random(1);
    for (const Index size : {1, 31, 32, 33, 257}) {
      const Tensor a = random_normal({size, 65}, random), b = random_normal({65, 18}, random);
      const Tensor y = matmul(narrow(a), narrow(b)), exact = widened(matmul(a, b));
      CHECK(y.dtype() == DType::bf16);
      CHECK(relative_error(widened(y), exact) <= 2 * naive_error(a, b, exact).narrow);
      const Tensor flipped = matmul(transposed(narrow(transpose(a))), transposed(narrow(transpose(b))));
      CHECK(flipped.to_vector<BFloat16>().size() == y.to_vector<BFloat16>().size());
      CHECK(relative_error(widened(flipped), widened(y)) < 0.01);
    }
  }

  TEST_CASE("stacks, by head, keep to their own matrices") {
    if (!has_gpu()) return;
    Generator random(2);
    const Tensor a = random_normal({2, 5, 3, 7}, random), b = random_normal({2, 6, 1, 7}, random);
    const Tensor y = matmul(by_head(narrow(a)), transposed(by_head(narrow(b))), 0.5, true);
    CHECK(relative_error(widened(y), widened(matmul(by_head(a), transposed(by_head(b)), 0.5, true))) < 0.02);
  }

  TEST_CASE("an affine map's gradients: x and the bias in bf16's error, weights summed and kept in f32") {
    if (!has_gpu()) return;
    Generator random(3);
    const Tensor x = random_normal({40, 33}, random), w = random_normal({21, 33}, random),
                 bias = random_normal({21}, random), dy = random_normal({40, 21}, random);
    const auto parameter = [](const Tensor& value) {
      Parameter made(value.to(DType::f32).to(Device::cuda(0)));
      made.set_shadow(DType::bf16);
      return made;
    };
    const Parameter weight = parameter(w), offset = parameter(bias), input(narrow(x));
    Tape tape;
    const Tensor y = linear(input, weight, offset, Unary::silu);
    CHECK(y.dtype() == DType::bf16);
    tape.backward(y, narrow(dy));
    CHECK(weight.gradient().dtype() == DType::f32);
    CHECK(offset.gradient().dtype() == DType::f32);

    const Parameter twin_x(x), twin_w(w), twin_b(bias);
    Tape twin_tape;
    const Tensor twin = linear(twin_x, twin_w, twin_b, Unary::silu);
    twin_tape.backward(twin, dy);
    const auto error = [](const Parameter& got, const Parameter& expected) {
      return relative_error(widened(got.gradient()), widened(expected.gradient()));
    };
    const Tensor plain_y = widened(matmul(x, transposed(w))), plain_dw = widened(matmul(transposed(dy), x));
    const NaiveError forward = naive_error(x, transpose(w), plain_y),
                     back = naive_error(transpose(dy), x, plain_dw);
    CHECK(relative_error(widened(y), widened(twin)) <= 2 * forward.narrow);
    CHECK(error(input, twin_x) <= 3 * forward.narrow);
    CHECK(error(weight, twin_w) <= 3 * back.narrow);
    CHECK(error(offset, twin_b) <= 3 * back.narrow);
  }

  TEST_CASE("a weight's gradient is not rounded to bf16") {
    if (!has_gpu()) return;
    Generator random(4);
    const Tensor x = random_normal({300, 5}, random), dy = random_normal({300, 4}, random);
    Parameter weight(random_normal({4, 5}, random).to(DType::f32).to(Device::cuda(0)));
    weight.set_shadow(DType::bf16);
    Tape tape;
    tape.backward(linear(narrow(x), weight), narrow(dy));
    const Tensor rounded_x = x.to(DType::bf16).to(DType::f64), rounded_dy = dy.to(DType::bf16).to(DType::f64);
    CHECK(relative_error(widened(weight.gradient()), widened(matmul(transposed(rounded_dy), rounded_x))) <
          2e-6);
  }

  TEST_CASE("tf32 rounds the factors and nothing else") {
    if (!has_gpu()) return;
    Generator random(5);
    const Tensor a = random_normal({33, 65}, random).to(DType::f32).to(Device::cuda(0)),
                 b = random_normal({65, 18}, random).to(DType::f32).to(Device::cuda(0));
    const Tensor exact = widened(matmul(widened(a), widened(b)));
    const double strict = relative_error(widened(matmul(a, b)), exact);
    cuda::set_matmul_precision(cuda::MatmulPrecision::tf32);
    const double rounded = relative_error(widened(matmul(a, b)), exact);
    cuda::set_matmul_precision(cuda::MatmulPrecision::f32);
    CHECK(strict < 2e-6);
    CHECK(rounded > 10 * strict);
    CHECK(rounded < 2e-3);
  }
}
