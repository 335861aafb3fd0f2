#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/nn/transformer/head_loss.h>

namespace tapeformer {

Head::Head(const HeadConfig& config, Generator& random)
    : Linear({config.width, config.vocabulary, config.bias, {}}, random), softcap_(config.softcap) {}

Tensor Head::operator()(const Tensor& states) const {
  const Tensor logits = linear(states, weight(), bias());
  return softcap_ > 0 ? tapeformer::softcap(logits, softcap_) : logits;
}

void Head::visit(ParameterVisitor& visitor) {
  visitor.parameter("weight", weight());
  visitor.parameter("bias", bias());
}

Tensor head_loss(const Head& head, const Tensor& states, const Tensor& targets,
                 const CrossEntropyOptions& options, const HeadLossConfig& config) {
  const ProfilePart part("head");
  LinearCrossEntropyOptions in_chunks;
  static_cast<CrossEntropyOptions&>(in_chunks) = options;
  if (head.softcap() > 0) in_chunks.softcap = head.softcap();
  const Tensor weight = head.weight(), bias = head.bias();
  if (!config.fused && !states.device().is_cuda())
    return cross_entropy(linear(states, weight, bias), targets, in_chunks);
  in_chunks.chunk = config.fused ? config.chunk : targets.elements();
  return linear_cross_entropy(states, weight, bias, targets, in_chunks);
}

}  // namespace tapeformer
