#pragma once

#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/tests/bench/clock.h>

#include <vector>

namespace tapeformer {

/// The median over `rounds` of the mean seconds of `calls` calls of `f`, the GPU's work included.
template <class F>
double gpu_seconds(Device device, int rounds, int calls, const F& f) {
  f();  // handles are made, pools grow
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    cuda::synchronize(device.index);
    const double begun = now();
    for (int call = 0; call < calls; ++call) f();
    cuda::synchronize(device.index);
    seconds.push_back((now() - begun) / calls);
  }
  return median(seconds);
}

/// FLOP/s of products of random square matrices through the library, which is what its layers can reach.
inline double gpu_matrix_rate(Device device, DType type, Index size) {
  Generator random(3);
  const auto drawn = [&] {
    const Tensor x = Tensor::empty({size, size}, DType::f32, Device::cpu());
    random.fill_normal(x, 0, 1);
    return x.to(device).to(type);
  };
  const Tensor a = drawn(), b = drawn();
  const double n = static_cast<double>(size);
  return 2 * n * n * n / gpu_seconds(device, 7, 5, [&] { matmul(a, b); });
}

/// Bytes a second, those read and those written, of a copy of `bytes` bytes within the device's memory.
inline double gpu_copy_bandwidth(Device device, Index bytes) {
  const Tensor from = Tensor::full({bytes / 4}, 1.5, DType::f32, device), to = Tensor::empty_like(from);
  return 2 * static_cast<double>(bytes) / gpu_seconds(device, 7, 5, [&] { to.copy_from(from); });
}

}  // namespace tapeformer
