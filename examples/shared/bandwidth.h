#pragma once

#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace tapeformer {

/// Bytes a second that memory or, where they fit, the caches can give to all threads, or to one if that is
/// faster: the best of many passes over arrays that take `bytes` together. In place: a = a + s b. Else
/// a = b + s c, which moves more than it says: a line that is stored is fetched first, and does not count.
/// `clock()` in seconds.
/// Source:  McCalpin 1995, "Memory bandwidth and machine balance in current high performance computers"
template <class Clock>
double bandwidth(double bytes, bool in_place, const Clock& clock) {
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
    const double begun = clock();
    for (int call = 0; call < calls; ++call) {
      if (round % 2 == 0) {
        kernels::parallel_ranges(count, count, pass);
      } else {
        pass(0, count);
      }
    }
    best = std::max(best, moved * calls / (clock() - begun));
  }
  return best;
}

}  // namespace tapeformer
