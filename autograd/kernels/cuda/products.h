#pragma once

#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/matmul.h>

namespace tapeformer::kernels {

/// One of the products of `s` in the library's description.
template <class T, class C>
cuda::StridedProducts described(const Gemm& s, const Write<C>& c) {
  cuda::StridedProducts products;
  products.factors = dtype_of<T>(), products.result = dtype_of<C>();
  products.m = s.m, products.n = s.n, products.k = s.k;
  products.transpose_a = s.transpose_a, products.transpose_b = s.transpose_b;
  products.lda = s.lda, products.ldb = s.ldb, products.ldc = s.ldc;
  products.scale = s.scale;
  products.add = c.add;
  return products;
}

}  // namespace tapeformer::kernels
