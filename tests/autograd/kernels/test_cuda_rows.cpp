#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

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

}  // namespace

TEST_CASE("softmax and its logarithm in bf16, of rows that a warp and that a block takes") {
  Generator random(test_seed(1));
  // 16 bytes hold 8: rows that threads hold in packs, from one for some lanes to four for all of a block.
  for (const Index n :
       {1, 8, 31, 32, 33, 257, 264, 512, 520, 776, 1024, 1025, 1032, 2056, 4099, 4104, 8200}) {
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
