#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// Adds to every token a weighted sum of itself and the tokens before it, column by column.
/// Math:    y_t = x_t + sum_j weight_j * x_{t-j}, j < K; x counts as 0 before the first token
/// Grad:    dx_t = dy_t + sum_j weight_j * dy_{t+j}; dweight_j = sum_t dy_t * x_{t-j}
/// Shapes:  x [B, T, C], weight [K, C], or the same values as one row [K C] -> y [B, T, C]
/// Saves:   x, weight
/// Throws:  ShapeError if the shapes do not fit, or there is no weight
/// Source:  Allen-Zhu 2025, arXiv:2512.17351 ("Canon layers"); So et al. 2021, arXiv:2109.08668 (depthwise
///          convolutions, without the residual)
Tensor causal_convolution(const Tensor& x, const Tensor& weight);

}  // namespace tapeformer
