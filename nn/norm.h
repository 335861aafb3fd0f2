#pragma once

#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/nn/module.h>

#include <string>

namespace tapeformer {

enum class NormKind { layer, rms };
/// "layer" or "rms".
const char* name_of(NormKind kind);
/// Throws: Error listing the valid names.
NormKind norm_kind(const std::string& name);

struct NormConfig {
  NormKind kind = NormKind::layer;  ///< which norm
  Index width = 0;                  ///< C, of the axis that is normalised
  double epsilon = 1e-5;            ///< added to the mean square or variance before its root
  bool bias = true;                 ///< layer norm's; RMS norm has none
};

/// LayerNorm or RmsNorm, by configuration.
/// Shapes:  x [..., width] -> y [..., width]; weight, bias [width]
class Norm : public Module {
 public:
  explicit Norm(const NormConfig& config);

  Tensor operator()(const Tensor& x) const;
  /// x + dropout(branch) and its norm, in one pass.
  SumAndNorm operator()(const Tensor& x, const Tensor& branch, const BranchDropout& dropped) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  NormKind kind_;
  double epsilon_;
  Parameter weight_, bias_;
};

}  // namespace tapeformer
