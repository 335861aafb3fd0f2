#include <tapeformer/autograd/ops/causal_convolution.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

using namespace tapeformer;

namespace {

Tensor convolved(const std::vector<Tensor>& x) { return causal_convolution(x[0], x[1]); }

}  // namespace

TEST_CASE("values and gradients are the CPU's, in packs of columns and one by one") {
  Generator random(test_seed(1));
  for (const Index width : {1, 8, 33, 40}) {
    for (const Index taps : {1, 4, 7}) {
      for (const Index length : {3, 50}) {
        for (const Index shift : {0, 1}) {
          CAPTURE(width);
          CAPTURE(taps);
          CAPTURE(length);
          CAPTURE(shift);
          const std::vector<Tensor> x{host_normal({3, length, width}, random),
                                      host_normal({taps, width}, random)};
          const Tensor dy = host_normal(x[0].shape(), random);
          check_as_on_cpu(convolved, x, dy, shift, 1e-13, 1e-5);
          check_bf16(convolved, {}, x, dy, shift);
        }
      }
    }
  }
}

TEST_CASE("the weight's gradient over any number of rows, of none too") {
  Generator random(test_seed(2));
  for (const Index length : {0, 1, 8, 130, 1100}) {
    CAPTURE(length);
    const std::vector<Tensor> x{host_normal({2, length, 5}, random), host_normal({3, 5}, random)};
    const Tensor dy = host_normal(x[0].shape(), random);
    const std::vector<Tensor> expected = with_gradients(convolved, x, dy),
                              got = with_gradients(convolved, on_gpu(x, DType::f64, 0), on_gpu(dy));
    check_near(got, expected, 1e-11, absolute_error);
  }
}

TEST_CASE("gradients of a weight with a shadow in bf16 are f32, and add up") {
  Generator random(test_seed(3));
  const Tensor x = on_gpu(host_normal({3, 100, 40}, random).to(DType::bf16));
  const Tensor value = host_normal({4 * 40}, random), dy = on_gpu(Tensor::full({3, 100, 40}, 1, DType::bf16));
  const Tensor exact = with_gradients(convolved, {readable(x), value}, readable(dy))[2];
  check_shadow([&](const Tensor& weight) { return causal_convolution(x, weight); }, value, dy, exact, 1e-5);
}
