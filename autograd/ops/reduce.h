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

/// The places of the `count` largest numbers of each row, the first of equal ones; NaN counts as infinity.
/// The tape does not record it.
/// Shapes:  x [R, N] -> i32 [R, K]: r N + n, ascending, where K = count; an embedding() of the places from x
///          as [R N, 1] has the numbers
/// Throws:  ShapeError unless x is a matrix with K columns or more whose places fit in 32 bits
Tensor largest_places(const Tensor& x, Index count);

/// Sums over the axes along which `shape` is broadcast to x's shape; the gradient of broadcast_to.
/// Throws:  ShapeError if it is not
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace tapeformer
