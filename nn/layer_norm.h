#pragma once

#include <tapeformer/nn/norm.h>

namespace tapeformer {

struct LayerNormConfig {
  Index width = 0;        ///< C, of the axis that is normalised
  double epsilon = 1e-5;  ///< added to the variance before its root
  bool bias = true;       ///< whether something is added after the gain
};

/// Normalises the last axis to mean 0 and variance 1, then scales and shifts it.
/// Math:    y = (x - mean) / sqrt(var + epsilon) * weight + bias
/// Shapes:  x [..., width] -> y [..., width]; weight, bias [width]
/// Source:  Ba et al. 2016, arXiv:1607.06450
class LayerNorm : public Norm {
 public:
  explicit LayerNorm(const LayerNormConfig& config)
      : Norm({NormKind::layer, config.width, config.epsilon, config.bias}) {}
};

}  // namespace tapeformer
