#pragma once

#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

struct LayerNormConfig {
  Index width = 0;
  double epsilon = 1e-5;
  bool bias = true;
};

/// Normalises the last axis to mean 0 and variance 1, then scales and shifts it.
/// Math:    y = (x - mean) / sqrt(var + epsilon) * weight + bias
/// Shapes:  x [..., width] -> y [..., width]; weight, bias [width]
/// Source:  Ba et al. 2016, arXiv:1607.06450
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const LayerNormConfig& config);

  Tensor operator()(const Tensor& x) const;
  /// x + dropout(branch) and its norm, at once.
  SumAndNorm operator()(const Tensor& x, const Tensor& branch, const BranchDropout& dropped) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  double epsilon_;
  Parameter weight_, bias_;
};

}  // namespace tapeformer
