#pragma once

#include <tapeformer/autograd/dtype.h>
#include <tapeformer/autograd/kernels/matmul.h>

namespace tapeformer::cuda {

/// Applied to results before they are written, with a bias for each column of c, which has c's type.
enum class Epilogue : std::uint8_t {
  none,
  bias,           // c + bias
  relu_bias,      // max(0, c + bias); for a NaN, either
  gelu_tanh_bias  // gelu by tanh of c + bias, which is written to `before` if that is given
};

/// c = scale a b (+ c), row-major, `count` times at equal distances in memory (in elements; 0 repeats a
/// factor). m, n and count are at least 1, and so is k for multiply().
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

/// One of the products of `s`.
template <class T, class C>
StridedProducts described(const kernels::Gemm& s, const kernels::Write<C>& c) {
  StridedProducts products;
  products.factors = dtype_of<T>(), products.result = dtype_of<C>();
  products.m = s.m, products.n = s.n, products.k = s.k;
  products.transpose_a = s.transpose_a, products.transpose_b = s.transpose_b;
  products.lda = s.lda, products.ldb = s.ldb, products.ldc = s.ldc;
  products.scale = s.scale;
  products.add = c.add;
  return products;
}

/// Queues the products on the device's stream of kernels. Sums are f32, for f64 factors f64; f32 factors are
/// rounded as matmul_precision() says. The same sizes and alignments always give the same bits. Returns
/// false, and queues nothing, if the library has no algorithm for them.
/// Throws:  DeviceError
bool multiply(int device, const StridedProducts& products, const void* a, const void* b, void* c,
              void* bias = nullptr, void* before = nullptr);

}  // namespace tapeformer::cuda
