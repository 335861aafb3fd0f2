#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// Normalises `axis` to a probability distribution. Minus infinity gives exactly zero, and a row with nothing
/// else (a query that may attend to nothing) becomes zeros, with zero gradient.
/// Math:    y = exp(x - max x) / sum exp(x - max x)
/// Grad:    dx = y * (dy - sum(y * dy))
/// Shapes:  x [..., N, ...] -> y as x
/// Units:   x logits (nats), y probability
/// Saves:   y
/// Throws:  ShapeError if axis is outside [-rank, rank)
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1
Tensor softmax(const Tensor& x, int axis = -1);

/// The logarithm of softmax, without its underflow. A row of minus infinities stays as it is.
/// Math:    y = x - max x - log sum exp(x - max x)
/// Grad:    dx = dy - exp(y) * sum(dy)
/// Shapes:  x [..., N, ...] -> y as x
/// Units:   x logits (nats), y log probability (nats)
/// Saves:   y
/// Throws:  ShapeError if axis is outside [-rank, rank)
Tensor log_softmax(const Tensor& x, int axis = -1);

}  // namespace tapeformer
