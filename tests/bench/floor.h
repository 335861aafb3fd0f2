#pragma once

#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tensor.h>
#include <tapeformer/examples/shared/machine_rates.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/training.h>

#include <algorithm>

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

/// Bytes per second, read and written, of a copy of `bytes` bytes within the device's memory.
inline double gpu_copy_bandwidth(Device device, Index bytes) {
  const Tensor from = Tensor::full({bytes / 4}, 1.5, DType::f32, device), to = Tensor::empty_like(from);
  return 2 * static_cast<double>(bytes) / gpu_seconds(device, 7, 5, [&] { to.copy_from(from); });
}

/// The machine's f32 matrix rate now, in FLOP/s: the best of several large products.
inline double gemm_rate() {
  constexpr Index kSide = 2048;
  const Tensor a = Tensor::full({kSide, kSide}, 1), b = Tensor::full({kSide, kSide}, 1),
               c = Tensor::empty_like(a);
  kernels::Gemm shape;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldc = kSide;
  double best = 0;
  for (int i = 0; i < 12; ++i) {
    const double begun = now();
    kernels::gemm(kernels::Cpu{}, shape, a.data<float>(), b.data<float>(),
                  kernels::Write<float>{c.data<float>(), false});
    best = std::max(best, 2.0 * kSide * kSide * kSide / (now() - begun));
  }
  return best;
}

/// The least work of a phase of a training step.
struct PhaseWork {
  double flops = 0, bytes = 0;
};

/// The phases' least work. A forward pass reads every parameter; a backward pass reads it again, does twice
/// the operations and writes its gradient. Clipping reads the gradient; AdamW reads it, the value and two
/// moments, and writes the last three. Activations are left out: how many of them must be stored depends on
/// how well operations are fused. `flops` of the whole step; `bytes` of a parameter in the passes: 2 in bf16,
/// whose copies the optimizer writes too.
inline std::array<PhaseWork, kPhases.size()> step_work(double flops, double parameters, double bytes) {
  const double copies = bytes < 4 ? bytes : 0;
  return {{{0, 0},
           {flops / 3, bytes * parameters},
           {2 * flops / 3, 2 * bytes * parameters},
           {0, (8 * std::max(bytes, 4.0) + copies) * parameters}}};
}

/// The machine's rates, measured now: operations and bytes per second.
struct SpeedOfLight {
  double flops = 0, bytes = 0;

  /// The least seconds.
  double floor(const PhaseWork& work) const { return std::max(work.flops / flops, work.bytes / bytes); }
};

inline SpeedOfLight speed_of_light(Device device, DType type) {
  if (!device.is_cuda()) {
    const double peak = type == DType::f64 ? peak_rate<double>() : std::max(peak_rate<float>(), gemm_rate());
    return {peak, bandwidth(768e6, true)};
  }
  double rate = 0;
  for (Index size = 256; size <= 8192; size *= 2) {  // the larger, the faster, but not for slow devices
    rate = std::max(rate, gpu_matrix_rate(device, type, size));
    const auto n = static_cast<double>(size);
    if (2 * n * n * n / rate > 1e-3) break;
  }
  const double bytes = gpu_copy_bandwidth(device, rate > 1e12 ? Index{1} << 30 : Index{1} << 22);
  return {rate, bytes};
}

}  // namespace tapeformer
