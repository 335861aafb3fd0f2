#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/norm.h>

#include <cmath>

namespace tapeformer {

constexpr const char* kNormKinds[] = {"layer", "rms", "scale"};
const char* name_of(NormKind kind) { return kNormKinds[static_cast<int>(kind)]; }
NormKind norm_kind(const std::string& name) {
  return kind_named<NormKind>("[norm] the kind", name, kNormKinds);
}

Norm::Norm(const NormConfig& config) : kind_(config.kind), width_(config.width), epsilon_(config.epsilon) {
  weight_ = Parameter(kind_ == NormKind::scale ? Tensor::full({1}, std::sqrt(static_cast<double>(width_)))
                                               : Tensor::full({width_}, 1));
  if (config.bias && kind_ == NormKind::layer) bias_ = Parameter(Tensor::zeros({config.width}));
}

/// ScaleNorm is an RMS norm whose gains are all g / sqrt(width).
Tensor Norm::gain() const {
  if (kind_ != NormKind::scale) return weight_;
  return broadcast_to(weight_ * (1 / std::sqrt(static_cast<double>(width_))), {width_});
}

Tensor Norm::operator()(const Tensor& x) const {
  if (kind_ != NormKind::layer) return rms_norm(x, gain(), epsilon_);
  return layer_norm(x, weight_, bias_.defined() ? bias_.used() : Tensor(), epsilon_);
}

SumAndNorm Norm::operator()(const Tensor& x, const Tensor& branch, const BranchDropout& dropped) const {
  if (kind_ != NormKind::layer) return add_rms_norm(x, branch, gain(), epsilon_, dropped);
  return add_layer_norm(x, branch, weight_, bias_.defined() ? bias_.used() : Tensor(), epsilon_, dropped);
}

void Norm::visit(ParameterVisitor& visitor) {
  visitor.parameter("weight", weight_);
  visitor.parameter("bias", bias_);
}

}  // namespace tapeformer
