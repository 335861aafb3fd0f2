#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/nn/transformer/head_loss.h>

namespace tapeformer {

Tensor head_loss(const Linear& head, const Tensor& states, const Tensor& targets,
                 const CrossEntropyOptions& options, const HeadLossConfig& config) {
  if (!config.fused && !states.device().is_cuda()) return cross_entropy(head(states), targets, options);
  LinearCrossEntropyOptions in_chunks;
  static_cast<CrossEntropyOptions&>(in_chunks) = options;
  in_chunks.chunk = config.fused ? config.chunk : targets.elements();
  const Tensor bias = head.bias().defined() ? head.bias().used() : Tensor();
  return linear_cross_entropy(states, head.weight(), bias, targets, in_chunks);
}

}  // namespace tapeformer
