#pragma once

#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

/// How head_loss() computes it; the value does not depend on it beyond rounding.
struct HeadLossConfig {
  bool fused = false;  ///< logits never exist all at once
  Index chunk = 0;     ///< rows at a time, when fused; 0 for a good number
};

/// cross_entropy(head(states), targets). On a GPU, fused or not, the loss writes the gradient over the logits
/// while it reads them.
/// Shapes:  states [..., C], targets i32 [...] -> []
Tensor head_loss(const Linear& head, const Tensor& states, const Tensor& targets,
                 const CrossEntropyOptions& options = {}, const HeadLossConfig& config = {});

}  // namespace tapeformer
