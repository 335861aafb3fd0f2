#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// Options of cross_entropy().
struct CrossEntropyOptions {
  Index ignored = -1;    ///< targets of this value do not count
  double smoothing = 0;  ///< this much of the target's weight is spread over all classes
  double softcap = 0;    ///< c > 0: the loss is that of the logits c tanh(x / c), see softcap()
};

/// Mean negative log likelihood of the targets that are not ignored; 0, with zero gradient, when all are.
/// Math:    loss = mean (log sum exp z - (1 - s) z_target - s mean z), s = smoothing, z = x, or with a
///          softcap c tanh(x / c)
/// Grad:    dx = dloss / counted * (softmax z - (1 - s) [target] - s / V), with a softcap times 1 - (z / c)^2
/// Shapes:  logits [..., V], targets i32 [...] -> loss [], f32 for bf16 logits
/// Units:   logits and loss in nats
/// Saves:   logits, targets, and the maximum and sum of exponentials of every row
/// Throws:  ShapeError if the shapes do not fit, a target is outside [0, V), or smoothing outside [0, 1], or
///          softcap below 0
/// Source:  smoothing: Szegedy et al. 2015, arXiv:1512.00567, section 7
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

/// Options of linear_cross_entropy().
struct LinearCrossEntropyOptions : CrossEntropyOptions {
  Index chunk = 0;  ///< rows whose logits exist at a time; 0: at least one, within 64 MiB (on a GPU 512)
};

/// cross_entropy(linear(x, weight, bias), targets) without storing all logits: they are computed for a chunk
/// of rows at a time, and if a tape records, the gradients with them in the forward pass. For a single chunk
/// of at most C rows the CPU saves dz instead, which is smaller than dweight, and multiplies it in the
/// backward.
/// Math:    loss = mean over the rows that are not ignored of (log sum exp z - z_target),
///          z = x weight^T + bias, smoothed and capped as in cross_entropy
/// Grad:    dz = dloss / counted * (softmax z - target); dx = dz weight, dweight = dz^T x, dbias = sum dz
/// Shapes:  x [..., C], weight [V, C], bias [V] or undefined, targets i32 [...] -> loss [], f32 for bf16
/// Units:   loss in nats
/// Saves:   x, weight and bias, and for dloss = 1 the gradients that are needed, or dz [rows, V] and dbias
/// Throws:  ShapeError if the shapes do not fit, a target is outside [0, V), smoothing outside [0, 1],
///          or softcap or chunk below 0
/// Source:  Wijmans et al. 2024, arXiv:2411.09009 (the idea of not storing logits)
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const LinearCrossEntropyOptions& options = {});

}  // namespace tapeformer
