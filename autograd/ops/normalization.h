#pragma once

#include <tapeformer/autograd/ops/dropout.h>

namespace tapeformer {

/// Centres and scales the last axis, then maps it by an elementwise affine function.
/// Math:    y = xhat * weight + bias, xhat = (x - mean x) / sqrt(mean (x - mean x)^2 + epsilon)
/// Grad:    g = dy * weight; dx = (g - mean g - xhat * mean(g * xhat)) / sqrt(variance + epsilon);
///          dweight = sum dy * xhat, dbias = sum dy over all but the last axis
/// Shapes:  x [..., C], weight [C] or undefined (1), bias [C] or undefined (0) -> y [..., C]
/// Saves:   x, weight, and the mean and 1 / sqrt(variance + epsilon) of every row
/// Throws:  ShapeError if the sizes do not fit
/// Source:  Ba, Kiros and Hinton 2016, arXiv:1607.06450
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);

/// Scales the last axis to a root mean square of one, then by a weight.
/// Math:    y = xhat * weight, xhat = x / sqrt(mean x^2 + epsilon)
/// Grad:    g = dy * weight; dx = (g - xhat * mean(g * xhat)) / sqrt(mean x^2 + epsilon);
///          dweight = sum dy * xhat over all but the last axis
/// Shapes:  x [..., C], weight [C] or undefined (1) -> y [..., C]
/// Saves:   x, weight, and 1 / sqrt(mean x^2 + epsilon) of every row
/// Throws:  ShapeError if the sizes do not fit
/// Source:  Zhang and Sennrich 2019, arXiv:1910.07467
Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon = 1e-6);

struct SumAndNorm {
  Tensor sum, y;
};
/// How elements of a branch are dropped before it is added; as it stands, none are.
struct BranchDropout {
  double probability = 0;
  DropoutKey key = {};
};

/// Two steps of a transformer at once, for one pass over memory each way: a sublayer's output joins the
/// residual sum, which is normalised for the next one. To the last bit what add, dropout and the norm give.
/// Math:    sum = x + dropout(branch); y as layer_norm's or rms_norm's of the sum
/// Grad:    dx = dsum + the norm's gradient; dbranch = dropout's of dx; weight and bias as the norm's
/// Shapes:  x, branch [..., C], weight and bias as above -> sum, y [..., C]
/// Saves:   the sum and what the norm saves, and dropout's bits
/// Throws:  ShapeError if the sizes do not fit, or the probability is outside [0, 1]
SumAndNorm add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                          double epsilon = 1e-5, const BranchDropout& dropped = {});
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, double epsilon = 1e-6,
                        const BranchDropout& dropped = {});

}  // namespace tapeformer
