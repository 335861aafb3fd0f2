#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

Tensor softmax_of(const std::vector<Tensor>& x) { return softmax(x[0]); }
Tensor log_softmax_of(const std::vector<Tensor>& x) { return log_softmax(x[0]); }
Tensor row_maxima(const Tensor& x) {
  const Tensor here = readable(x.detach());
  return filled({x.size(0), 1},
                [&](Index row) {
                  double most = here.at(row * x.size(1));
                  for (Index i = 1; i < x.size(1); ++i) most = std::max(most, here.at(row * x.size(1) + i));
                  return most;
                })
      .to(x.dtype())
      .to(x.device());
}
/// One operation after the other, each result rounded.
Tensor plain_log_softmax(const std::vector<Tensor>& x) {
  const Tensor shifted = x[0] - row_maxima(x[0]);
  return shifted - log(sum(exp(shifted), {-1}, true));
}
Tensor plain_softmax(const std::vector<Tensor>& x) {
  const Tensor e = exp(x[0] - row_maxima(x[0]));
  return e / sum(e, {-1}, true);
}

Tensor layer_norm_of(const std::vector<Tensor>& x) { return layer_norm(x[0], x[1], x[2]); }
Tensor rms_norm_of(const std::vector<Tensor>& x) { return rms_norm(x[0], x[1]); }
/// One operation after the other, each result rounded.
Tensor plain_layer_norm(const std::vector<Tensor>& x) {
  const Tensor deviation = x[0] - mean(x[0], {-1}, true);
  return deviation / sqrt(mean(deviation * deviation, {-1}, true) + 1e-5) * x[1] + x[2];
}
Tensor plain_rms_norm(const std::vector<Tensor>& x) {
  return x[0] / sqrt(mean(x[0] * x[0], {-1}, true) + 1e-6) * x[1];
}

std::vector<Tensor> inputs_of(Index rows, Index n, Generator& random) {
  return {affine(host_normal({rows, n}, random), 2, 0.5), host_normal({n}, random), host_normal({n}, random)};
}

}  // namespace

TEST_CASE("softmax and its logarithm in bf16, of rows that a warp and that a block takes") {
  Generator random(test_seed(1));
  // 16 bytes hold 8: rows that threads hold in packs, from one for some lanes to four for all of a block.
  const Index widths[] = {1,   8,    31,   32,   33,   257,  264,  512, 520,
                          776, 1024, 1025, 1032, 2056, 4099, 4104, 8200};
  for (const Index& n : widths) {
    if (!is_tried(&n - widths)) continue;
    for (const Index rows : {1, 9}) {
      if (n > 2000 && rows > 1) continue;
      CAPTURE(n);
      CAPTURE(rows);
      const Tensor x = affine(host_normal({rows, n}, random), 3, 0), dy = host_normal({rows, n}, random);
      check_bf16(softmax_of, plain_softmax, {x}, dy, n % 3);
      check_bf16(softmax_of, plain_softmax, {x}, dy);
      check_bf16(log_softmax_of, plain_log_softmax, {x}, dy);
      check_bf16(log_softmax_of, plain_log_softmax, {x}, dy, 1);
    }
  }
}

TEST_CASE("rows of minus infinities become zeros in bf16, without gradient, between rows that do not") {
  for (const Index n : {3, 40, 1100, 2400, 9000}) {
    const Tensor x = filled({3, n}, [&](Index i) {
      return i / n == 1 || i % n == 1 ? -INFINITY : 0.1 * static_cast<double>(i % 7);
    });
    const Tensor dy = filled({3, n}, [](Index i) { return static_cast<double>(i % 5); });
    const std::vector<Tensor> got =
        with_gradients(softmax_of, {on_gpu(x.to(DType::bf16))}, on_gpu(dy.to(DType::bf16)));
    const Tensor y = readable(got[0]), dx = readable(got[1]);
    for (Index i = 0; i < 3 * n; ++i) {
      const bool masked = i / n == 1 || i % n == 1;
      CHECK((y.at(i) == 0) == masked);
      if (masked) CHECK(dx.at(i) == 0);
    }
    const Tensor logarithm = readable(log_softmax(on_gpu(x.to(DType::f32))));
    for (Index i = 0; i < 3 * n; ++i) CHECK(std::isinf(logarithm.at(i)) == (i / n == 1 || i % n == 1));
  }
}

TEST_CASE("bf16 is summed in f32, and rounded once, over several axes too") {
  Generator random(test_seed(4));
  const Tensor x = on_gpu(host_normal({33, 5, 257}, random).to(DType::bf16));
  for (const Axes& axes : {Axes{}, Axes{0}, Axes{2}, Axes{0, 2}}) {
    const Tensor exact = sum(readable(x), axes);
    CHECK_BELOW(relative_error(readable(sum(x, axes)), exact), 0x1p-8 + 1e-6);
  }
  CHECK(sum(Tensor::full({4099}, 1, DType::bf16, Device::cuda())).item() == 4096);  // 4099, rounded
  CHECK(sum(Tensor::full({1000}, 1.00390625, DType::f32, Device::cuda())).item() == 1003.90625);
  const Function mean_of = [](const auto& in) { return mean(in[0], {0}); };
  const Tensor many = host_normal({257, 7}, random), dy = host_normal({7}, random);
  check_bf16(mean_of, {}, {many}, dy);
}

TEST_CASE(
    "both norms of rows that threads hold in packs, of every number of them, and of rows that do not begin "
    "at one") {
  Generator random(test_seed(5));
  // Packs hold 4 numbers in f32, 8 in bf16: up to 4 packs for each thread of a warp, of a block, and more.
  const Index widths[] = {5, 8, 31, 33, 136, 257, 264, 392, 520, 776, 1025, 1032, 8200, 4104, 5000, 2056};
  for (const Index& n : widths) {
    if (!is_tried(&n - widths)) continue;
    for (const Index shift : {0, 1}) {
      CAPTURE(n);
      CAPTURE(shift);
      const Index rows = n < 1000 ? 21 : 3;
      const std::vector<Tensor> x = inputs_of(rows, n, random);
      const Tensor dy = host_normal({rows, n}, random);
      check_bf16(layer_norm_of, plain_layer_norm, x, dy, shift);
      check_bf16(rms_norm_of, plain_rms_norm, {x[0], x[1]}, dy, shift);
      check_as_on_cpu(layer_norm_of, x, dy, shift, 1e-12, 1e-5);
    }
  }
}

TEST_CASE("a branch joins in one pass: the bits of the single steps, in packs and without") {
  Generator random(test_seed(6));
  const DropoutKey key{3, 1, 4};
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const Index n : {24, 33, 264, 1032, 1100, 5000}) {
      for (const double probability : {0.0, 0.3}) {
        CAPTURE(name_of(type));
        CAPTURE(n);
        CAPTURE(probability);
        const std::vector<Tensor> x = inputs_of(19, n, random);
        std::vector<Tensor> in{on_gpu(x[0].to(type)), on_gpu(host_normal({19, n}, random).to(type)),
                               on_gpu(x[1].to(type)), on_gpu(x[2].to(type))};
        const Function fused = [&](const auto& of) {
          const SumAndNorm both = add_layer_norm(of[0], of[1], of[2], of[3], 1e-5, {probability, key});
          return concat({both.sum, both.y}, 0);
        };
        const Function apart = [&](const auto& of) {
          const Tensor sum = of[0] + dropout(of[1], probability, key);
          return concat({sum, layer_norm(sum, of[2], of[3])}, 0);
        };
        const Tensor dy = on_gpu(host_normal({38, n}, random).to(type));
        const std::vector<Tensor> got = with_gradients(fused, in, dy),
                                  expected = with_gradients(apart, in, dy);
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(same_values(got[i], expected[i]));
      }
    }
  }
}

TEST_CASE("sums over any number of rows are the CPU's") {
  Generator random(test_seed(2));
  for (const Index rows : {0, 1, 7, 8, 9, 127, 128, 129, 1000, 8300}) {  // 264 parts at most from 2112 on
    for (const Index n : {1, 33}) {
      CAPTURE(rows);
      CAPTURE(n);
      const double times = n == 1 ? 30 : 1;
      check_as_on_cpu(layer_norm_of, inputs_of(rows, n, random), host_normal({rows, n}, random), 1,
                      1e-11 * times, 2e-4 * times, absolute_error);
    }
  }
}

TEST_CASE("gradients of a weight with a shadow in bf16 are f32, and add up") {
  Generator random(test_seed(3));
  const Tensor x = on_gpu(host_normal({300, 40}, random).to(DType::bf16));
  check_shadow([&](const Tensor& weight) { return sum(rms_norm(x, weight)); }, host_normal({40}, random), {},
               sum(rms_norm(readable(x), {}), {0}), 1e-5);
}
