#pragma once

#include <tapeformer/tests/reference/support.h>

#include <cmath>

namespace tapeformer {

/// Six tokens of three features ("Your journey starts with one step"), whose self-attention was published
/// step by step, as PyTorch printed it. f64 [6, 3].
inline Tensor walkthrough_tokens() {
  return values({0.43, 0.15, 0.89, 0.55, 0.87, 0.66, 0.57, 0.85, 0.64, 0.22, 0.58, 0.33, 0.77, 0.25, 0.10,
                 0.05, 0.80, 0.55},
                {6, 3});
}

/// True if every element rounds to the four decimals printed.
inline bool prints_as(const Tensor& x, const std::vector<double>& printed) {
  if (x.elements() != static_cast<Index>(printed.size())) return false;
  for (Index i = 0; i < x.elements(); ++i) {
    if (std::round(x.at(i) * 1e4) != std::round(printed[static_cast<std::size_t>(i)] * 1e4)) return false;
  }
  return true;
}

}  // namespace tapeformer
