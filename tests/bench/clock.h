#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

namespace tapeformer {

/// Seconds, of the wall clock.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of work by all threads of this process.
inline double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace tapeformer
