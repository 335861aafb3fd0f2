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
  Broadcast batch;  // sizes of the batch axes, with strides of a, b and c; no axes for a single product
};

template <class T>
void gemm(Cpu, const Gemm& shape, const T* a, const T* b, Write<T> c);
/// C is T or Wide<T>: sums over many rows, as gradients of weights, stay wide.
template <class T, class C>
void gemm(Cuda, const Gemm& shape, const T* a, const T* b, Write<C> c);

/// z [rows, columns] += bias (when given), then y = f(z), if there is an f. z and y may be the same, unless
/// z is to hold f'(z) afterwards.
template <class T>
void bias_activation(Cpu, Index rows, Index columns, const T* bias, std::optional<Unary> f, bool derives,
                     T* z, T* y);
template <class T>
void bias_activation(Cuda, Index rows, Index columns, const T* bias, std::optional<Unary> f, bool derives,
                     T* z, T* y);

/// A sentence when products are slower than they could be (no oneDNN, or an OpenBLAS whose threads fight
/// OpenMP's for the cores), else "".
const char* gemm_warning();

}  // namespace tapeformer::kernels
