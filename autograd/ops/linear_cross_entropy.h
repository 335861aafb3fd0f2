#pragma once

#include <tapeformer/autograd/ops/loss.h>

namespace tapeformer {

struct LinearCrossEntropyOptions : CrossEntropyOptions {
  Index chunk =
      0;  ///< rows whose logits exist at a time; 0 for as many as take 64 MiB (on a GPU 512), or one
};

/// cross_entropy(linear(x, weight, bias), targets) without ever storing the logits: they are computed for a
/// chunk of rows at a time, and the gradients with them, in the forward pass if a tape records. Of a single
/// chunk of at most C rows the CPU keeps dz instead, which is smaller than dweight, and multiplies it in the
/// backward.
/// Math:    loss = mean over the rows that are not ignored of (log sum exp z - z_target),
///          z = x weight^T + bias, smoothed as in cross_entropy
/// Grad:    dz = dloss / counted * (softmax z - target); dx = dz weight, dweight = dz^T x, dbias = sum dz
/// Shapes:  x [..., C], weight [V, C], bias [V] or undefined, targets i32 [...] -> loss [], f32 of bf16
/// Units:   loss in nats
/// Saves:   x, weight and bias, and for dloss = 1 the gradients of those that want one, or dz [rows, V] and
///          dbias
/// Throws:  ShapeError if the shapes do not fit, a target is outside [0, V), smoothing outside [0, 1],
///          or a chunk below 0
/// Source:  Wijmans et al. 2024, arXiv:2411.09009 (the idea of not storing logits)
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const LinearCrossEntropyOptions& options = {});

}  // namespace tapeformer
