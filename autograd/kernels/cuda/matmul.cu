#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/unary.h>
#include <tapeformer/autograd/kernels/matmul.h>

namespace tapeformer::kernels {
namespace {

/// The product over an empty k.
template <class C>
__global__ void clear_matrix_kernel(Index rows, Index columns, Index row_stride, C* c) {
  for_each_index(rows * columns, [&](Index i) { c[i / columns * row_stride + i % columns] = C(0); });
}

template <class T>
__device__ Wide<T> with_bias(Index columns, const T* bias, const T* z, Index i) {
  const auto value = static_cast<Wide<T>>(z[i]);
  return bias == nullptr ? value : value + static_cast<Wide<T>>(bias[divide(i, columns).remainder]);
}

template <class T>
__global__ void bias_kernel(Index count, Index columns, const T* bias, T* z) {
  for_each_index(count, [&](Index i) { z[i] = static_cast<T>(with_bias(columns, bias, z, i)); });
}

template <Unary f, class T>
__global__ void bias_activation_kernel(Index count, Index columns, const T* bias, T* z, T* y) {
  for_each_index(count, [&](Index i) {
    const Wide<T> x = with_bias(columns, bias, z, i);
    z[i] = static_cast<T>(x);
    y[i] = static_cast<T>(unary_value<f>(x));  // last: y may be z
  });
}

template <Unary f, class T>
__global__ void bias_activation_derivative_kernel(Index count, Index columns, const T* bias, T* z, T* y) {
  for_each_index(count, [&](Index i) {
    const auto at = value_and_derivative<f>(with_bias(columns, bias, z, i));
    z[i] = static_cast<T>(at.derivative);
    y[i] = static_cast<T>(at.value);
  });
}

/// The axis of the batch that goes to the library as one; 0 if there is none.
int longest_axis(const Broadcast& batch) {
  int longest = 0;
  for (int axis = 1; axis < batch.axes; ++axis) {
    if (batch.sizes[axis] > batch.sizes[longest]) longest = axis;
  }
  return longest;
}

/// Calls f with the offsets of a, b and c for each index of the batch axes, without `left_out`.
template <class F>
void for_each_offset(const Broadcast& batch, int left_out, F&& f) {
  Broadcast others = batch;
  others.sizes[left_out] = 1;
  const Index count = others.elements();
  for (Index i = 0; i < count; ++i) {
    Index a = 0, b = 0, c = 0, rest = i;
    for (int axis = others.axes - 1; axis >= 0; --axis) {
      const Index at = rest % others.sizes[axis];
      rest /= others.sizes[axis];
      a += at * others.strides_a[axis];
      b += at * others.strides_b[axis];
      c += at * others.strides_c[axis];
    }
    f(a, b, c);
  }
}

}  // namespace

template <class T, class C>
void gemm(Cuda on, const Gemm& s, const T* a, const T* b, Write<C> c) {
  if (s.m == 0 || s.n == 0 || s.batch.elements() == 0) return;
  cuda::StridedProducts products;
  products.factors = dtype_of<T>(), products.result = dtype_of<C>();
  products.m = s.m, products.n = s.n, products.k = s.k;
  products.transpose_a = s.transpose_a, products.transpose_b = s.transpose_b;
  products.lda = s.lda, products.ldb = s.ldb, products.ldc = s.ldc;
  products.scale = s.scale;
  products.add = c.add;
  const int axis = longest_axis(s.batch);
  if (s.batch.axes > 0) {
    products.count = s.batch.sizes[axis];
    products.stride_a = s.batch.strides_a[axis];
    products.stride_b = s.batch.strides_b[axis];
    products.stride_c = s.batch.strides_c[axis];
  }
  for_each_offset(s.batch, axis, [&](Index offset_a, Index offset_b, Index offset_c) {
    if (s.k > 0) {
      cuda::multiply(on.device, products, a + offset_a, b + offset_b, c.to + offset_c);
    } else if (!c.add) {
      for (Index i = 0; i < products.count; ++i) {
        launch(on, "clear_matrix", clear_matrix_kernel<C>, blocks_for(s.m * s.n), dim3(kBlock), 0, s.m, s.n,
               s.ldc, c.to + offset_c + i * products.stride_c);
      }
    }
  });
}

template <class T>
void bias_activation(Cuda on, Index rows, Index columns, const T* bias, std::optional<Unary> f, bool derives,
                     T* z, T* y) {
  const Index count = rows * columns;
  const auto queue = [&](auto kernel, auto... result) {
    launch(on, "bias_activation", kernel, blocks_for(count), dim3(kBlock), 0, count, columns, bias, z,
           result...);
  };
  if (!f) return queue(bias_kernel<T>);
  with_unary(*f, [&](auto constant) {
    constexpr Unary function = decltype(constant)::value;
    if constexpr (!saves_output(function)) {
      if (derives) return queue(bias_activation_derivative_kernel<function, T>, y);
    }
    queue(bias_activation_kernel<function, T>, y);
  });
}

template void gemm(Cuda, const Gemm&, const float*, const float*, Write<float>);
template void gemm(Cuda, const Gemm&, const double*, const double*, Write<double>);
template void gemm(Cuda, const Gemm&, const BFloat16*, const BFloat16*, Write<BFloat16>);
template void gemm(Cuda, const Gemm&, const BFloat16*, const BFloat16*, Write<float>);
template void bias_activation(Cuda, Index, Index, const float*, std::optional<Unary>, bool, float*, float*);
template void bias_activation(Cuda, Index, Index, const double*, std::optional<Unary>, bool, double*,
                              double*);
template void bias_activation(Cuda, Index, Index, const BFloat16*, std::optional<Unary>, bool, BFloat16*,
                              BFloat16*);

}  // namespace tapeformer::kernels
