#pragma once

#include <tapeformer/autograd/tensor.h>

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

/// RMS norms of each head's queries and keys in rows of a packed projection, which begin with `queries` heads
/// of queries, followed by `keys` heads of keys. The rest of a row is copied.
/// Math:    each head is rms_norm(head, query_weight) or rms_norm(head, key_weight)
/// Shapes:  x [..., N], both weights [D], N >= (queries + keys) D -> y [..., N]
/// Saves:   x, the weights, and the scale of every head
/// Throws:  ShapeError if the sizes do not fit
Tensor packed_head_norms(const Tensor& x, Index queries, Index keys, const Tensor& query_weight,
                         const Tensor& key_weight, double epsilon = 1e-6);

/// Either of the two norms, for operations that include one.
struct Normalization {
  const char* op;
  Tensor weight, bias;
  bool centred;  ///< layer_norm, else rms_norm
  double epsilon;
};
/// Throws: ShapeError in the name of norm.op if the weights do not fit x.
void check_normalization(const Normalization& norm, const Tensor& x);
/// layer_norm() or rms_norm(), by `norm`.
Tensor normalize(const Normalization& norm, const Tensor& x);

}  // namespace tapeformer
