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
  if (!is_adapted()) return linear(x, weight_, bias_, activation_);
  const Tensor y = linear(x, weight_, bias_) + linear(linear(x, adapter_a_) * adapter_scale_, adapter_b_);
  return activation_ ? unary(*activation_, y) : y;
}

void Linear::adapt(Index rank, double scale, Generator& random) {
  const Tensor& weight = weight_.value();
  adapter_a_ = Parameter(Tensor::empty({rank, weight.size(1)}, weight.dtype(), weight.device()));
  torch_linear_default(adapter_a_, weight.size(1), random);
  adapter_b_ = Parameter(Tensor::zeros({weight.size(0), rank}, weight.dtype(), weight.device()));
  for (Parameter* matrix : {&adapter_a_, &adapter_b_}) matrix->set_shadow(weight_.used().dtype());
  adapter_scale_ = scale;
}

Tensor Linear::whole_weight() const {
  return is_adapted() ? weight_ + matmul(adapter_b_, adapter_a_) * adapter_scale_ : weight_.used();
}

void Linear::visit(ParameterVisitor& visitor) {
  visitor.linear(*this);
  visitor.parameter("weight", weight_);
  visitor.parameter("bias", bias_);
  visitor.parameter(kAdapterA, adapter_a_);
  visitor.parameter(kAdapterB, adapter_b_);
}

}  // namespace tapeformer
