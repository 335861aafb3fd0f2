#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/nn/rms_norm.h>

namespace tapeformer {

RmsNorm::RmsNorm(const RmsNormConfig& config)
    : epsilon_(config.epsilon), weight_(Tensor::full({config.width}, 1)) {}

Tensor RmsNorm::operator()(const Tensor& x) const { return rms_norm(x, weight_, epsilon_); }

void RmsNorm::visit(ParameterVisitor& visitor) { visitor.parameter("weight", weight_); }

}  // namespace tapeformer
