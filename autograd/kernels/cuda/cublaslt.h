#pragma once

#include <tapeformer/autograd/dtype.h>
#include <tapeformer/autograd/shape.h>

namespace tapeformer::cuda {

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
};

/// Queues the products on the device's stream of kernels. Sums are f32, of f64 factors f64; f32 factors are
/// taken as matmul_precision() says. The same sizes give the same bits every time.
/// Throws: DeviceError
void multiply(int device, const StridedProducts& products, const void* a, const void* b, void* c);

}  // namespace tapeformer::cuda
