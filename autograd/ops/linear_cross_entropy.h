#pragma once

#include <tapeformer/autograd/ops/loss.h>

namespace tapeformer {

struct LinearCrossEntropyOptions : CrossEntropyOptions {
  Index chunk = 0;  ///< rows whose logits exist at a time; 0 for as many as take about 16 MB
};

/// cross_entropy(linear(x, weight, bias), targets) without ever storing the logits: they are computed for a
/// chunk of rows at a time, and the gradients with them, in the forward pass if a tape records.
/// Math:    loss = mean over the rows that are not ignored of (log sum exp z - z_target), z = x weight^T + bias,
///          smoothed as in cross_entropy
/// Grad:    dz = dloss / counted * (softmax z - target); dx = dz weight, dweight = dz^T x, dbias = sum dz
/// Shapes:  x [..., C], weight [V, C], bias [V] or undefined, targets i32 [...] -> loss []
/// Units:   loss in nats
/// Saves:   x, weight and bias, and the gradients of those that want one
/// Throws:  ShapeError if the shapes do not fit, a target is outside [0, V), or smoothing outside [0, 1]
/// Source:  Wijmans et al. 2024, arXiv:2411.09009 (the idea of not storing logits)
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const LinearCrossEntropyOptions& options = {});

}  // namespace tapeformer
