#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// Reductions over `axes`, or over all axes if none are given.
/// Math:    sum x, sum x / n, sum (x - mean)^2 / (n - correction)
/// Shapes:  x -> x without `axes`, or with size 1 there if keep_axes
/// Saves:   nothing for sum and mean, x - mean for var
/// Throws:  ShapeError if an axis is outside [-rank, rank)
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keep_axes = false);
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keep_axes = false);
/// `correction` 1 is the unbiased estimate (PyTorch's default), 0 is the population's variance.
Tensor var(const Tensor& x, const Axes& axes = {}, bool keep_axes = false, double correction = 1);

/// Sums over the axes along which `shape` is broadcast to x's shape; the gradient of broadcast_to.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace tapeformer
