#pragma once

#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/nn/module.h>

#include <string>

namespace tapeformer {

/// Layer norm, RMS norm, or scale norm: RMS norm with one gain for all components.
enum class NormKind { layer, rms, scale };
/// "layer", "rms" or "scale".
const char* name_of(NormKind kind);
/// Throws: Error listing the valid names.
NormKind norm_kind(const std::string& name);

struct NormConfig {
  NormKind kind = NormKind::layer;  ///< which norm
  Index width = 0;                  ///< C, of the axis that is normalised
  double epsilon = 1e-5;            ///< added to the mean square or variance before its root
  bool bias = true;                 ///< layer norm's; the others have none
};

/// LayerNorm, RmsNorm or ScaleNorm, by configuration.
/// Math:    scale: y = g x / sqrt(|x|^2 + width epsilon), g = sqrt(width) at first
/// Shapes:  x [..., width] -> y [..., width]; weight, bias [width]; scale: weight [1], which is g
/// Source:  scale: Nguyen and Salazar 2019, arXiv:1910.05895, section 2.2
class Norm : public Module {
 public:
  explicit Norm(const NormConfig& config);

  Tensor operator()(const Tensor& x) const;
  /// x + dropout(branch) and its norm, in one pass.
  SumAndNorm operator()(const Tensor& x, const Tensor& branch, const BranchDropout& dropped) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  Tensor gain() const;

  NormKind kind_;
  Index width_;
  double epsilon_;
  Parameter weight_, bias_;
};

}  // namespace tapeformer
