#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

// Bounds of the rounding errors of a result, only from sizes and magnitudes, and so for every processor,
// compiler, library and number of threads, in whatever order they add and whichever products they fuse with
// sums.
// Source: Higham 2002, Accuracy and Stability of Numerical Algorithms, section 3.1.

/// u: the largest relative error of one rounding to the nearest.
double unit_roundoff(DType type);

/// gamma_n = n u / (1 - n u): the largest relative error of n roundings one after another. A sum of n
/// products is off by at most gamma_n sum |a b|, in any order.
double gamma_of(Index roundings, DType type);

/// The largest relative error in f64 of a value that takes a few operations: 32 roundings. Functions such as
/// exp() are off by one to four, with some libraries and instructions more than with others.
constexpr double kFewRoundings = 0x1p-48;

/// max |a - b| / bound over the elements: at most 1 where `bound` [the shape of b] holds. 0 where a and b are
/// equal; NaN where one of them is. Throws: ShapeError if the shapes differ.
double over_bound(const Tensor& a, const Tensor& b, const Tensor& bound);

/// |x|, as f64 on the CPU.
Tensor magnitude(const Tensor& x);

}  // namespace tapeformer
