#pragma once

#include <tapeformer/autograd/dtype.h>
#include <tapeformer/autograd/shape.h>

#include <cstdint>

namespace tapeformer::cuda {

/// What is done to results before they are written, with a bias for each column of c: of c's type, or its
/// gradient.
enum class Epilogue : std::uint8_t {
  none,
  bias,            // c + bias
  relu_bias,       // the larger of 0 and that; of a NaN, either
  gelu_tanh_bias,  // gelu by tanh of c + bias, which goes to `before`, when that is given
  bias_gradient    // bias = the sum over k of a, which is stored transposed
};

/// c = scale a b (+ c), row-major, `count` times at even distances in memory (in elements; 0 repeats a
/// factor). m, n, k and count are at least 1.
struct StridedProducts {
  DType factors = DType::f32, result = DType::f32;
  Index m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // a is stored [k, m], b is stored [n, k]
  Index lda = 0, ldb = 0, ldc = 0;
  Index count = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  double scale = 1;
  bool add = false;
  Epilogue epilogue = Epilogue::none;
};

/// Queues the products on the device's stream of kernels. Sums are f32, of f64 factors f64; f32 factors are
/// taken as matmul_precision() says. The same sizes give the same bits every time. False, and nothing is
/// queued, when the library has no algorithm for them.
/// Throws: DeviceError
bool multiply(int device, const StridedProducts& products, const void* a, const void* b, void* c,
              void* bias = nullptr, void* before = nullptr);

}  // namespace tapeformer::cuda
