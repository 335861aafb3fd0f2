#pragma once

#include <tapeformer/nn/module.h>

namespace tapeformer {

struct RmsNormConfig {
  Index width = 0;
  double epsilon = 1e-6;
};

/// Scales the last axis to root mean square 1, then by a weight.
/// Math:    y = x / sqrt(mean(x^2) + epsilon) * weight
/// Shapes:  x [..., width] -> y [..., width]; weight [width]
/// Source:  Zhang and Sennrich 2019, arXiv:1910.07467
class RmsNorm : public Module {
 public:
  explicit RmsNorm(const RmsNormConfig& config);

  Tensor operator()(const Tensor& x) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  double epsilon_;
  Parameter weight_;
};

}  // namespace tapeformer
