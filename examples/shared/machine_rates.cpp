#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/tensor.h>
#include <tapeformer/examples/shared/machine_rates.h>
#include <tapeformer/examples/shared/progress.h>

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace tapeformer {

template <class T>
double peak_rate() {
  using kernels::Lanes;
  constexpr int kChains = 12;      // enough to hide the latency of two units, few enough for 16 registers
  constexpr Index kSteps = 40000;  // one or two milliseconds
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
      for (int k = 0; k < kChains; ++k) chains[k] = Lanes<T>(T(k));  // distinct, so that none are merged
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

template double peak_rate<float>();
template double peak_rate<double>();

double bandwidth(double bytes, bool in_place) {
  static std::map<std::pair<int, bool>, double> known;
  const int step = static_cast<int>(std::lround(4 * std::log2(std::clamp(bytes, 48e3, 768e6))));
  double& best = known[{step, in_place}];
  if (best > 0) return best;
  const auto count = static_cast<Index>(std::exp2(step / 4.0)) / (in_place ? 8 : 12);
  const Tensor x = Tensor::full({count}, 1), y = Tensor::full({count}, 0), z = Tensor::empty({count});
  const float *b = x.data<float>(), *c = y.data<float>();
  float* a = z.data<float>();
  const auto pass = [&](Index from, Index to) {
    if (in_place) {
#pragma omp simd
      for (Index i = from; i < to; ++i) a[i] = a[i] + 3 * c[i];
    } else {
#pragma omp simd
      for (Index i = from; i < to; ++i) a[i] = b[i] + 3 * c[i];
    }
  };
  pass(0, count);
  const double moved = 12.0 * static_cast<double>(count);
  const int calls = static_cast<int>(std::max(1.0, 4e6 / moved)), rounds = moved > 64e6 ? 10 : 50;
  for (int round = 0; round < rounds; ++round) {
    const double begun = now_seconds();
    for (int call = 0; call < calls; ++call) {
      if (round % 2 == 0) {
        kernels::parallel_ranges(count, count, pass);
      } else {
        pass(0, count);
      }
    }
    best = std::max(best, moved * calls / (now_seconds() - begun));
  }
  return best;
}

}  // namespace tapeformer
