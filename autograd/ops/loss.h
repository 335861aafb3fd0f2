#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

struct CrossEntropyOptions {
  Index ignored = -1;    ///< targets that count for nothing
  double smoothing = 0;  ///< this much of the target's weight is spread over all classes
};

/// Mean negative log likelihood of the targets that are not ignored; 0, with zero gradient, when all are.
/// Math:    loss = mean (log sum exp x - (1 - s) x_target - s mean x), s = smoothing
/// Grad:    dx = dloss / counted * (softmax x - (1 - s) [target] - s / V)
/// Shapes:  logits [..., V], targets i32 [...] -> loss [], f32 of bf16 logits
/// Units:   logits and loss in nats
/// Saves:   logits, targets, and the maximum and sum of exponentials of every row
/// Throws:  ShapeError if the shapes do not fit, a target is outside [0, V), or smoothing outside [0, 1]
/// Source:  smoothing: Szegedy et al. 2015, arXiv:1512.00567, section 7
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

}  // namespace tapeformer
