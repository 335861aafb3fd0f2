#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/nn/norm.h>

namespace tapeformer {
namespace {

Tensor used(const Parameter& parameter) { return parameter.defined() ? parameter.used() : Tensor(); }

}  // namespace

Norm::Norm(const NormConfig& config) : kind_(config.kind), epsilon_(config.epsilon) {
  if (config.gain) weight_ = Parameter(Tensor::full({config.width}, 1));
  if (config.bias && kind_ == NormKind::layer) bias_ = Parameter(Tensor::zeros({config.width}));
}

Tensor Norm::operator()(const Tensor& x) const {
  if (kind_ != NormKind::layer) return rms_norm(x, used(weight_), epsilon_);
  return layer_norm(x, used(weight_), used(bias_), epsilon_);
}

SumAndNorm Norm::operator()(const Tensor& x, const Tensor& branch, const BranchDropout& dropped) const {
  if (kind_ != NormKind::layer) return add_rms_norm(x, branch, used(weight_), epsilon_, dropped);
  return add_layer_norm(x, branch, used(weight_), used(bias_), epsilon_, dropped);
}

void Norm::visit(ParameterVisitor& visitor) {
  visitor.parameter("weight", weight_);
  visitor.parameter("bias", bias_);
}

}  // namespace tapeformer
