#pragma once

#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

/// How head_loss() computes the loss; the value changes by rounding only.
struct HeadLossConfig {
  bool fused = false;  ///< compute the logits chunk by chunk, so that they are never stored as a whole
  Index chunk = 0;     ///< rows of a chunk when fused; 0 chooses
};

/// cross_entropy(head(states), targets). On a GPU, fused or not, the loss writes the gradient over the logits
/// while it reads them.
/// Shapes:  states [..., C], targets i32 [...] -> []
Tensor head_loss(const Linear& head, const Tensor& states, const Tensor& targets,
                 const CrossEntropyOptions& options = {}, const HeadLossConfig& config = {});

}  // namespace tapeformer
