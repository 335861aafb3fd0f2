#pragma once

#include <tapeformer/autograd/kernels/cuda/device.h>

namespace tapeformer::kernels {

template <class F, class T, class... X>
__global__ void map_kernel(Index count, F f, Write<T> y, const X*... x) {
  for_each_index(count, [&](Index i) { y.put(i, f(static_cast<Wide<X>>(x[i])...)); });
}

/// y[i] = f(x[i]...), reckoned in the wide types; y may be one of x.
template <class F, class T, class... X>
void map(Cuda on, const char* name, Index count, F f, Write<T> y, const X*... x) {
  launch(on, name, map_kernel<F, T, X...>, blocks_for(count), dim3(kBlock), 0, count, f, y, x...);
}

/// Quotient and remainder; in 32 bits where the numbers allow it, several times as fast as in 64.
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
