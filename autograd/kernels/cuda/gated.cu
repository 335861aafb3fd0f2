#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/unary.h>
#include <tapeformer/autograd/kernels/gated.h>

namespace tapeformer::kernels {
namespace {

/// The offsets of the i-th result's a and b in x [rows, 2 width].
struct Halves {
  Index a, b;
};
__device__ Halves halves_at(Index i, Index width) {
  const Index a = i + divide(i, width).quotient * width;
  return {a, a + width};
}

template <class F, class T>
__global__ void gated_forward_kernel(Index count, bool packed, Index width, const T* x, T* y) {
  using W = Wide<T>;
  for_each_pack_of_grid<kCommonPack<T>>(count, packed, [&](auto size, Index i) {
    constexpr int N = decltype(size)::value;
    const Halves at = halves_at(i, width);
    const Pack<T, N> a = load_pack<N>(x + at.a), b = load_pack<N>(x + at.b);
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k)
      result.of[k] = static_cast<T>(F::value(static_cast<W>(a.of[k])) * static_cast<W>(b.of[k]));
    store_pack(y + i, result);
  });
}

template <class F, class T>
__global__ void gated_backward_kernel(Index count, bool packed, Index width, const T* x, const T* dy,
                                      Write<T> dx) {
  using W = Wide<T>;
  for_each_pack_of_grid<kCommonPack<T>>(count, packed, [&](auto size, Index i) {
    constexpr int N = decltype(size)::value;
    const Halves at = halves_at(i, width);
    const Pack<T, N> of_a = load_pack<N>(x + at.a), of_b = load_pack<N>(x + at.b),
                     of_y = load_pack<N>(dy + i);
    Pack<W, N> da, db;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const W a = static_cast<W>(of_a.of[k]), d = static_cast<W>(of_y.of[k]);
      const W gate = F::value(a);
      da.of[k] = F::gradient(F::saves_output ? gate : a, d * static_cast<W>(of_b.of[k]));
      db.of[k] = d * gate;
    }
    put_pack(dx, at.a, da);
    put_pack(dx, at.b, db);
  });
}

/// True if both halves of every row begin at a pack's alignment.
template <class T>
bool rows_are_packed(Index width, const T* x, const T* y) {
  return width % kCommonPack<T> == 0 && are_packed(x, y);
}

}  // namespace

template <class T>
void gated_forward(Cuda on, Unary f, Index rows, Index width, const T* x, T* y) {
  const Index count = rows * width;
  const bool packed = rows_are_packed(width, x, y);
  with_function(f, [&](auto function) {
    launch(on, "gated_forward", gated_forward_kernel<decltype(function), T>,
           blocks_for_packs<kCommonPack<T>>(count, packed), count, packed, width, x, y);
  });
}

template <class T>
void gated_backward(Cuda on, Unary f, Index rows, Index width, const T* x, const T* dy, Write<T> dx) {
  const Index count = rows * width;
  const bool packed = rows_are_packed(width, x, dy) && are_packed(dx.to);
  with_function(f, [&](auto function) {
    launch(on, "gated_backward", gated_backward_kernel<decltype(function), T>,
           blocks_for_packs<kCommonPack<T>>(count, packed), count, packed, width, x, dy, dx);
  });
}

TAPEFORMER_CUDA_KERNEL(gated_forward);
TAPEFORMER_CUDA_KERNEL(gated_backward);

}  // namespace tapeformer::kernels
