#pragma once

#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/layer_norm.h>

namespace tapeformer {

/// A sublayer with its residual connection.
/// Math:    pre-norm: x + dropout(f(norm(x))); post-norm: norm(x + dropout(f(x)))
/// Shapes:  x [B, T, C] -> [B, T, C]
template <class Sublayer>
Tensor residual(const Tensor& x, bool norm_first, const LayerNorm& norm, const Dropout& dropout,
                const Sublayer& sublayer) {
  if (norm_first) return x + dropout(sublayer(norm(x)));
  return norm(x + dropout(sublayer(x)));
}

}  // namespace tapeformer
