#pragma once

#include <tapeformer/autograd/kernels/cuda/pack.h>

#include <tuple>

namespace tapeformer::kernels {

/// The first `end` packs of N elements, divided among the threads of the grid; each keeps kAtOnce in flight.
template <int N, class F, class T, class... X>
__device__ void map_packs(Index end, F& f, const Write<T>& y, const X*... x) {
  constexpr int kAtOnce = N > 1 ? 2 : 1;
  const Index stride = Index{gridDim.x} * blockDim.x;
  for (Index first = Index{blockIdx.x} * blockDim.x + threadIdx.x; first < end; first += kAtOnce * stride) {
    std::tuple<Pack<X, N>...> in[kAtOnce];
    Pack<T, N> out[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const Index i = first + u * stride;
      if (i >= end) break;
      std::apply([&](auto&... of) { ((of = load_pack<N>(x + i * N)), ...); }, in[u]);
      if (y.add) out[u] = load_pack<N>(y.to + i * N);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const Index i = first + u * stride;
      if (i >= end) break;
      const std::tuple<Pack<Wide<X>, N>...> wide =
          std::apply([](const auto&... of) { return std::make_tuple(widened(of)...); }, in[u]);
      Pack<Wide<T>, N> values;
#pragma unroll
      for (int k = 0; k < N; ++k)
        values.of[k] = std::apply([&](const auto&... of) { return f(of.of[k]...); }, wide);
      if (y.add) add_pack(values, widened(out[u]));
      store_pack(y.to + i * N, narrowed<T>(values));
    }
  }
}

template <class F, class T, class... X>
__global__ void map_kernel(Index count, bool packed, F f, Write<T> y, const X*... x) {
  constexpr int N = kCommonPack<T, X...>;
  const Index packs = packed ? count / N : 0, done = packs * N;
  map_packs<N>(packs, f, y, x...);
  map_packs<1>(count - done, f, Write<T>{y.to + done, y.add}, (x + done)...);
}

/// y[i] = f(x[i]...), computed in the wide types; y may be one of x.
template <class F, class T, class... X>
void map(Cuda on, const char* name, Index count, F f, Write<T> y, const X*... x) {
  const bool packed = are_packed(y.to, x...);
  launch(on, name, map_kernel<F, T, X...>, blocks_for_packs<kCommonPack<T, X...>>(count, packed), count,
         packed, f, y, x...);
}

/// Quotient and remainder; several times as fast in 32 bits, if the numbers fit, as in 64.
struct Division {
  Index quotient, remainder;
};
__device__ inline Division divide(Index a, Index b) {
  if (static_cast<std::uint64_t>(a | b) >> 32 == 0) {
    const auto narrow = static_cast<std::uint32_t>(a), by = static_cast<std::uint32_t>(b);
    return {narrow / by, narrow % by};
  }
  return {a / b, a % b};
}

}  // namespace tapeformer::kernels
