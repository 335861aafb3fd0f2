#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/unary.h>
#include <tapeformer/autograd/kernels/gated.h>

namespace tapeformer::kernels {
namespace {

/// Where a and b of the i-th result are in x [rows, 2 width].
struct Halves {
  Index a, b;
};
__device__ Halves halves_at(Index i, Index width) {
  const Index a = i + divide(i, width).quotient * width;
  return {a, a + width};
}

template <Unary f, class T>
__global__ void gated_forward_kernel(Index count, Index width, const T* x, T* y) {
  using W = Wide<T>;
  for_each_index(count, [&](Index i) {
    const Halves at = halves_at(i, width);
    y[i] = static_cast<T>(unary_value<f>(static_cast<W>(x[at.a])) * static_cast<W>(x[at.b]));
  });
}

template <Unary f, class T>
__global__ void gated_backward_kernel(Index count, Index width, const T* x, const T* dy, Write<T> dx) {
  using W = Wide<T>;
  for_each_index(count, [&](Index i) {
    const Halves at = halves_at(i, width);
    const W a = static_cast<W>(x[at.a]), b = static_cast<W>(x[at.b]), d = static_cast<W>(dy[i]);
    const W gate = unary_value<f>(a);
    dx.put(at.a, unary_gradient<f>(saves_output(f) ? gate : a, d * b));
    dx.put(at.b, d * gate);
  });
}

}  // namespace

template <class T>
void gated_forward(Cuda on, Unary f, Index rows, Index width, const T* x, T* y) {
  const Index count = rows * width;
  with_unary(f, [&](auto constant) {
    launch(on, "gated_forward", gated_forward_kernel<decltype(constant)::value, T>, blocks_for(count),
           dim3(kBlock), 0, count, width, x, y);
  });
}

template <class T>
void gated_backward(Cuda on, Unary f, Index rows, Index width, const T* x, const T* dy, Write<T> dx) {
  const Index count = rows * width;
  with_unary(f, [&](auto constant) {
    launch(on, "gated_backward", gated_backward_kernel<decltype(constant)::value, T>, blocks_for(count),
           dim3(kBlock), 0, count, width, x, dy, dx);
  });
}

#define INSTANTIATE(T)                                                  \
  template void gated_forward(Cuda, Unary, Index, Index, const T*, T*); \
  template void gated_backward(Cuda, Unary, Index, Index, const T*, const T*, Write<T>);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(BFloat16)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
