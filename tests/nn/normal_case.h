#pragma once

#include <tapeformer/autograd/tensor.h>
#include <tapeformer/tests/reference/check_below.h>

#include <cmath>

namespace tapeformer {

/// Numbers are normal with a mean of 0, by their first, second and fourth moments.
inline void check_normal(const Tensor& x, double standard_deviation) {
  const auto count = static_cast<double>(x.elements());
  double total = 0, squares = 0, fourths = 0;
  for (Index i = 0; i < x.elements(); ++i) {
    const double z = x.at(i) / standard_deviation;
    total += z;
    squares += z * z;
    fourths += z * z * z * z;
  }
  CHECK_BELOW(std::fabs(total / count), kDeviations / std::sqrt(count));
  CHECK_BELOW(std::fabs(squares / count - 1), kDeviations * std::sqrt(2 / count));
  CHECK_BELOW(std::fabs(fourths / count - 3), kDeviations * std::sqrt(96 / count));
}

}  // namespace tapeformer
