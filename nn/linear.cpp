#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/nn/initialization.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

Linear::Linear(const LinearConfig& config, Generator& random)
    : activation_(config.activation), weight_(Tensor::empty({config.outputs, config.inputs})) {
  torch_linear_default(weight_, config.inputs, random);
  if (config.bias) {
    bias_ = Parameter(Tensor::empty({config.outputs}));
    torch_linear_default(bias_, config.inputs, random);
  }
}

Tensor Linear::operator()(const Tensor& x) const {
  return linear(x, weight_, bias_.defined() ? bias_.used() : Tensor(), activation_);
}

void Linear::visit(ParameterVisitor& visitor) {
  visitor.parameter("weight", weight_);
  visitor.parameter("bias", bias_);
}

}  // namespace tapeformer
