#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

/// LayerNorm, or RmsNorm, which subtracts no mean and has no bias.
enum class NormKind { layer, rms };
template <>
inline constexpr EnumNames kNames<NormKind>{"[norm] the kind", {"layer", "rms"}};

/// Configuration of either kind.
struct NormConfig {
  NormKind kind = NormKind::layer;  ///< which norm
  Index width = 0;                  ///< C, of the axis that is normalised
  double epsilon = 1e-5;            ///< added to the mean square or variance before its root
  bool bias = true;                 ///< layer norm's; RMS norm has none
  bool gain = true;                 ///< else nothing multiplies what is normalised
};

/// LayerNorm or RmsNorm, by configuration.
/// Shapes:  x [..., width] -> y [..., width]; weight, bias [width]
class Norm : public Module {
 public:
  explicit Norm(const NormConfig& config) : kind_(config.kind), epsilon_(config.epsilon) {
    if (config.gain) weight_ = Parameter(Tensor::full({config.width}, 1));
    if (config.bias && kind_ == NormKind::layer) bias_ = Parameter(Tensor::zeros({config.width}));
  }

  Tensor operator()(const Tensor& x) const {
    if (kind_ != NormKind::layer) return rms_norm(x, weight_, epsilon_);
    return layer_norm(x, weight_, bias_, epsilon_);
  }
  /// x + dropout(branch) and its norm, in one pass.
  SumAndNorm operator()(const Tensor& x, const Tensor& branch, const BranchDropout& dropped) const {
    if (kind_ != NormKind::layer) return add_rms_norm(x, branch, weight_, epsilon_, dropped);
    return add_layer_norm(x, branch, weight_, bias_, epsilon_, dropped);
  }
  void visit(ParameterVisitor& visitor) override {
    visitor.parameter("weight", weight_);
    visitor.parameter("bias", bias_);
  }

 private:
  NormKind kind_;
  double epsilon_;
  Parameter weight_, bias_;
};

struct LayerNormConfig {
  Index width = 0;        ///< C, of the axis that is normalised
  double epsilon = 1e-5;  ///< added to the variance before its root
  bool bias = true;       ///< whether a bias is added after the gain
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
