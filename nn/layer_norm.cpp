#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/nn/layer_norm.h>

namespace tapeformer {

LayerNorm::LayerNorm(const LayerNormConfig& config)
    : epsilon_(config.epsilon), weight_(Tensor::full({config.width}, 1)) {
  if (config.bias) bias_ = Parameter(Tensor::zeros({config.width}));
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  return layer_norm(x, weight_, bias_.defined() ? bias_.used() : Tensor(), epsilon_);
}

SumAndNorm LayerNorm::operator()(const Tensor& x, const Tensor& branch, const BranchDropout& dropped) const {
  return add_layer_norm(x, branch, weight_, bias_.defined() ? bias_.used() : Tensor(), epsilon_, dropped);
}

void LayerNorm::visit(ParameterVisitor& visitor) {
  visitor.parameter("weight", weight_);
  visitor.parameter("bias", bias_);
}

}  // namespace tapeformer
