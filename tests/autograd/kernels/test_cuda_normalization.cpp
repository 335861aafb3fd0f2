#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

using namespace tapeformer;

namespace {

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

TEST_CASE(
    "both norms of rows that threads hold in packs, of every number of them, and of rows that do not begin "
    "at one") {
  Generator random(test_seed(5));
  // Packs hold 4 numbers in f32, 8 in bf16: up to 4 packs for each thread of a warp, of a block, and more.
  for (const Index n : {5, 8, 31, 33, 136, 257, 264, 392, 520, 776, 1025, 1032, 2056, 4104, 5000, 8200}) {
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
  Parameter weight(on_gpu(host_normal({40}, random, DType::f32)));
  weight.set_shadow(DType::bf16);
  for (int pass = 1; pass <= 2; ++pass) {
    Tape tape;
    tape.backward(sum(rms_norm(x, weight)));
    CHECK(weight.gradient().dtype() == DType::f32);
    const Tensor exact = sum(rms_norm(readable(x), {}), {0});
    CHECK_BELOW(relative_error(readable(weight.gradient()), affine(exact, pass, 0)), 1e-5);
  }
}
