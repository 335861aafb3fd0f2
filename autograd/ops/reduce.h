#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// Reductions over `axes`; over all of them when there are none.
/// Math:    sum x, sum x / n, max x, sum (x - mean)^2 / (n - correction)
/// Grad:    max shares dy evenly among the elements that reach the maximum
/// Shapes:  x -> x without `axes`, or with size 1 there if keep_axes
/// Saves:   nothing for sum and mean; x and the maxima for max; x for var
/// Throws:  ShapeError if an axis is outside [-rank, rank), or max is over nothing
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keep_axes = false);
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keep_axes = false);
Tensor max(const Tensor& x, const Axes& axes = {}, bool keep_axes = false);
/// `correction` 1 is the unbiased estimate (PyTorch's default), 0 the population's.
Tensor var(const Tensor& x, const Axes& axes = {}, bool keep_axes = false, double correction = 1);

/// Sums what broadcasting `shape` to x's shape would have repeated; the gradient of broadcast_to.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace tapeformer
