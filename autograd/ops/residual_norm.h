#pragma once

#include <tapeformer/autograd/ops/dropout.h>

namespace tapeformer {

/// The two results of add_layer_norm() and add_rms_norm().
struct SumAndNorm {
  /// The sum for the next residual connection, and y for the next sublayer.
  Tensor sum, y;
};
/// Dropout of a branch before it is added; none by default.
struct BranchDropout {
  double probability = 0;  ///< of dropping an element
  DropoutKey key = {};     ///< which elements are dropped
};

/// Two steps of a transformer in one pass over memory each way: a sublayer's output is added to the residual
/// sum, which is normalised for the next sublayer. The bits are those of add, dropout and the norm.
/// Math:    sum = x + dropout(branch); y as layer_norm's or rms_norm's of the sum
/// Grad:    dx = dsum + the norm's gradient; dbranch = dropout's of dx; weight and bias as the norm's
/// Shapes:  x, branch [..., C], weight and bias [C] or undefined -> sum, y [..., C]
/// Saves:   the sum and what the norm saves, and dropout's bits
/// Throws:  ShapeError if the sizes do not fit, or the probability is outside [0, 1]
SumAndNorm add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                          double epsilon = 1e-5, const BranchDropout& dropped = {});
/// add_layer_norm() with rms_norm() in place of layer_norm().
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, double epsilon = 1e-6,
                        const BranchDropout& dropped = {});

}  // namespace tapeformer
