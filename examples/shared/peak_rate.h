#pragma once

#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/examples/shared/progress.h>

#include <omp.h>

#include <algorithm>

namespace tapeformer {

/// What this machine's threads can do at most, in FLOP/s: multiply-adds on registers alone, the best of
/// several short rounds.
template <class T>
double peak_rate() {
  using kernels::Lanes;
  constexpr int kChains = 12;      // enough to hide the latency of two units, few enough for 16 registers
  constexpr Index kSteps = 40000;  // a millisecond or two
  constexpr int kRounds = 20;
  const double flops =
      2.0 * kChains * kSteps * static_cast<double>(kernels::kLanes<T>) * omp_get_max_threads();
  volatile T factor = T(0.999), kept = 0;
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    double begun = 0, ended = 0;
#pragma omp parallel
    {
      const Lanes<T> by(factor), plus(T(1) - factor);
      Lanes<T> chains[kChains];
      for (int k = 0; k < kChains; ++k) chains[k] = Lanes<T>(T(k));  // different, or they would be merged
#pragma omp barrier
#pragma omp master
      begun = now_seconds();
      for (Index i = 0; i < kSteps; ++i) {
        for (auto& chain : chains) chain = xsimd::fma(chain, by, plus);
      }
      Lanes<T> sum = chains[0];
      for (int k = 1; k < kChains; ++k) sum += chains[k];
#pragma omp critical
      kept = kept + kernels::sum_lanes<T>(sum);
#pragma omp barrier
#pragma omp master
      ended = now_seconds();
    }
    best = std::max(best, flops / (ended - begun));
  }
  return best;
}

}  // namespace tapeformer
