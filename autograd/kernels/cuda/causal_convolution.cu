#include <tapeformer/autograd/kernels/causal_convolution.h>
#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/normalization.h>

namespace tapeformer::kernels {
namespace {

/// y[t] = x[t] + sum over j of weight[j] x[t - j], or with `ahead` x[t + j]: a pack of N neighbouring columns
/// for each thread. The taps of a block's tokens overlap, so that all but one come from the caches.
template <int N, class T>
__global__ void convolve_kernel(Convolution s, bool ahead, const T* x, const T* weight, Write<T> y) {
  using W = Wide<T>;
  const Index packs = s.width / N, step = ahead ? s.width : -s.width;
  for_each_index(s.rows() * packs, [&](Index i) {
    const Division place = divide(i, packs);
    const Index t = divide(place.quotient, s.length).remainder, column = place.remainder * N;
    const Index at = place.quotient * s.width + column, tokens = ahead ? s.length - t : t + 1;
    Pack<W, N> sum = widened(load_pack<N>(x + at));
    for (Index j = 0; j < s.taps && j < tokens; ++j) {
      const Pack<T, N> w = load_pack<N>(weight + j * s.width + column), v = load_pack<N>(x + at + j * step);
#pragma unroll
      for (int k = 0; k < N; ++k) sum.of[k] += static_cast<W>(w.of[k]) * static_cast<W>(v.of[k]);
    }
    put_pack<N>(y, at, sum);
  });
}

constexpr int kColumns = kWarp, kRowThreads = kBlock / kColumns;
constexpr int kTapsAtOnce = 4;

/// One block for a strip of columns and a part of the rows: partials[part][j] = the sum of dy[t] x[t - j].
/// Each warp sums every kRowThreads-th row, for kTapsAtOnce taps at once.
template <class T>
__global__ void tap_parts_kernel(Convolution s, const T* x, const T* dy, Wide<T>* partials) {
  using W = Wide<T>;
  __shared__ W of_warps[kRowThreads][kTapsAtOnce][kColumns];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const Index column = Index{blockIdx.x} * kColumns + lane, part = blockIdx.y, parts = gridDim.y;
  const Index from = s.rows() * part / parts + warp;
  const Index end = column < s.width ? s.rows() * (part + 1) / parts : 0;
  for (Index first = 0; first < s.taps; first += kTapsAtOnce) {
    W sums[kTapsAtOnce] = {};
    Index t = from < end ? divide(from, s.length).remainder : 0;
    for (Index row = from; row < end; row += kRowThreads) {
      const W slope = static_cast<W>(dy[row * s.width + column]);
#pragma unroll
      for (int k = 0; k < kTapsAtOnce; ++k) {
        const Index j = first + k;
        if (j < s.taps && j <= t) sums[k] += slope * static_cast<W>(x[(row - j) * s.width + column]);
      }
      for (t += kRowThreads; t >= s.length;) t -= s.length;
    }
#pragma unroll
    for (int k = 0; k < kTapsAtOnce; ++k) of_warps[warp][k][lane] = sums[k];
    __syncthreads();
    if (warp < kTapsAtOnce && first + warp < s.taps && column < s.width) {  // a warp for each tap
      W sum(0);
      for (int other = 0; other < kRowThreads; ++other) sum += of_warps[other][warp][lane];
      partials[(part * s.taps + first + warp) * s.width + column] = sum;
    }
    __syncthreads();
  }
}

template <class T>
void convolve(Cuda on, const Convolution& s, bool ahead, const T* x, const T* weight, Write<T> y) {
  constexpr int N = kPackSize<T>;
  const bool packed = s.width % N == 0 && are_packed(x, weight, y.to);
  launch(on, "causal_convolution", packed ? convolve_kernel<N, T> : convolve_kernel<1, T>,
         blocks_for(s.rows() * (packed ? s.width / N : s.width)), s, ahead, x, weight, y);
}

}  // namespace

template <class T>
void causal_convolution_forward(Cuda on, const Convolution& s, const T* x, const T* weight, T* y) {
  convolve(on, s, false, x, weight, Write<T>{y, false});
}

template <class T>
void causal_convolution_backward(Cuda on, const Convolution& s, const T* x, const T* weight, const T* dy,
                                 Wide<T>* partials, Write<T> dx) {
  if (dx) convolve(on, s, true, dy, weight, dx);
  if (partials == nullptr) return;
  const Index parts = normalize_parts(on, s.rows(), s.width);
  launch(on, "causal_convolution", tap_parts_kernel<T>,
         {tiles_of(s.width, kColumns), parts, 1, dim3(kColumns, kRowThreads)}, s, x, dy, partials);
}

TAPEFORMER_CUDA_KERNEL(causal_convolution_forward);
TAPEFORMER_CUDA_KERNEL(causal_convolution_backward);

}  // namespace tapeformer::kernels
