#pragma once

#include <tapeformer/autograd/device.h>
#include <tapeformer/examples/shared/machine_rates.h>
#include <tapeformer/tests/bench/gemm_rate.h>
#include <tapeformer/tests/bench/gpu_rates.h>
#include <tapeformer/tests/bench/training.h>

#include <algorithm>
#include <array>

namespace tapeformer {

/// What a phase of a training step cannot do without.
struct Work {
  double flops = 0, bytes = 0;
};

/// The phases' least work. A forward pass reads every parameter; a backward pass reads it again, does twice
/// the operations and writes its gradient. Clipping reads the gradient; AdamW reads it, the value and two
/// moments, and writes the last three. Activations are left out: how many of them must be stored depends on
/// how well operations are fused. `flops` of the whole step; `bytes` of a parameter in the passes: 2 in bf16,
/// whose copies the optimizer writes too.
inline std::array<Work, kPhases.size()> step_work(double flops, double parameters, double bytes) {
  const double copies = bytes < 4 ? bytes : 0;
  return {{{0, 0},
           {flops / 3, bytes * parameters},
           {2 * flops / 3, 2 * bytes * parameters},
           {0, (8 * std::max(bytes, 4.0) + copies) * parameters}}};
}

/// What the machine can do, measured now: operations and bytes a second.
struct SpeedOfLight {
  double flops = 0, bytes = 0;

  /// The least seconds.
  double floor(const Work& work) const { return std::max(work.flops / flops, work.bytes / bytes); }
};

inline SpeedOfLight speed_of_light(Device device, DType type) {
  if (!device.is_cuda()) {
    const double peak =
        type == DType::f64 ? peak_rate<double>() : std::max(peak_rate<float>(), gemm_rate(now));
    return {peak, bandwidth(768e6, true, now)};
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
