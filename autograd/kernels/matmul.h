#pragma once

#include <tapeformer/autograd/kernels/elementwise.h>

#include <optional>

namespace tapeformer::kernels {

/// c = scale * a b, row-major with leading sizes, once for every index of the batch axes.
struct Gemm {
  Index m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // a is stored [k, m], b is stored [n, k]
  Index lda = 0, ldb = 0, ldc = 0;
  double scale = 1;
  Broadcast batch;     // sizes of the batch axes, with strides of a, b and c; no axes for a single product
  bool rounds = true;  // whether the CPU may round factors, as matmul_precision() says
};
/// A single product of dense matrices.
inline Gemm dense_gemm(Index m, Index n, Index k, bool transpose_a, bool transpose_b) {
  const auto lead = [](Index columns) { return columns > 1 ? columns : 1; };
  return {m,       n, k, transpose_a, transpose_b, lead(transpose_a ? m : k), lead(transpose_b ? k : n),
          lead(n), 1, {}};
}

template <class T>
void gemm(Cpu, const Gemm& shape, const T* a, const T* b, Write<T> c);
/// C is T or Wide<T>: sums over many rows, as gradients of weights, stay wide.
template <class T, class C>
void gemm(Cuda, const Gemm& shape, const T* a, const T* b, Write<C> c);

/// y [m, n] = f(x weight^T + bias), of one product; bias may be nullptr. If a reverse pass needs more of f
/// than y, `saved`, of y's size, receives it: on the CPU f', which costs least when y is computed; on a GPU
/// the argument of f, which costs least memory traffic. Otherwise `saved` is nullptr.
TAPEFORMER_KERNEL(linear_forward, const Gemm& shape, const T* x, const T* weight, const T* bias,
                  std::optional<Unary> f, T* saved, T* y);
/// dz [rows, n] = dy f', from the `saved` of linear_forward(), or from y if f saves its output; dbias [n] =
/// the sum of dz over its rows, unless it is nullptr.
TAPEFORMER_KERNEL(linear_activation_backward, Unary f, Index rows, Index n, const T* saved, const T* dy,
                  T* dz, Write<Wide<T>> dbias);

/// A sentence if products are slower than they could be (no oneDNN, or an OpenBLAS whose threads compete with
/// OpenMP's), else an empty string. A shared library exports it because programs use it too.
[[gnu::visibility("default")]] const char* gemm_warning();
/// True if products of bf16 are faster here than products of f32: oneDNN and a processor with AVX512-BF16.
[[gnu::visibility("default")]] bool has_bf16_products();

}  // namespace tapeformer::kernels
