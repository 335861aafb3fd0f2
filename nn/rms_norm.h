#pragma once

#include <tapeformer/nn/norm.h>

namespace tapeformer {

struct RmsNormConfig {
  Index width = 0;        ///< C, of the axis that is normalised
  double epsilon = 1e-6;  ///< added to the mean square before its root
};

/// Scales the last axis to root mean square 1, then by a weight.
/// Math:    y = x / sqrt(mean(x^2) + epsilon) * weight
/// Shapes:  x [..., width] -> y [..., width]; weight [width]
/// Source:  Zhang and Sennrich 2019, arXiv:1910.07467
class RmsNorm : public Norm {
 public:
  explicit RmsNorm(const RmsNormConfig& config)
      : Norm({NormKind::rms, config.width, config.epsilon, false}) {}
};

}  // namespace tapeformer
