#pragma once

#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/tensor.h>

#include <algorithm>

namespace tapeformer {

/// The machine's f32 matrix rate now, in FLOP/s: the best of several large products. `now()` in seconds.
template <class Clock>
double gemm_rate(const Clock& now) {
  constexpr Index kSide = 2048;
  const Tensor a = Tensor::full({kSide, kSide}, 1), b = Tensor::full({kSide, kSide}, 1),
               c = Tensor::empty_like(a);
  kernels::Gemm shape;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldc = kSide;
  double best = 0;
  for (int i = 0; i < 12; ++i) {
    const double begun = now();
    kernels::gemm(kernels::Cpu{}, shape, a.data<float>(), b.data<float>(),
                  kernels::Write<float>{c.data<float>(), false});
    best = std::max(best, 2.0 * kSide * kSide * kSide / (now() - begun));
  }
  return best;
}

}  // namespace tapeformer
