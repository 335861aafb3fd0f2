#pragma once

#include <tapeformer/autograd/kernels/elementwise.h>
#include <tapeformer/autograd/parameter.h>
#include <tapeformer/autograd/tensor.h>

#include <optional>

namespace tapeformer {

/// A factor of a matrix product and its layout; nothing is copied.
struct Factor {
  /// A tensor, or the value of a parameter that operations read, in its own layout.
  /// @{
  Factor(const Tensor& tensor) : x(tensor) {}                  // NOLINT: a tensor is a factor
  Factor(const Parameter& parameter) : x(parameter.used()) {}  // NOLINT
  /// @}
  Tensor x;                 ///< the matrices, [..., rows, columns]
  bool transposed = false;  ///< swaps the last two axes
  bool by_head = false;  ///< whether it is stored [..., rows, H, columns] and read as [..., H, rows, columns]
};
/// The factor with its last two axes swapped.
Factor transposed(Factor factor);
/// [..., T, H, D] read as [..., H, T, D]: the layout that attention projections produce.
Factor by_head(Factor factor);

/// Batched matrix product.
/// Math:    y = scale * a b
/// Grad:    da = scale * dy b^T, db = scale * a^T dy
/// Shapes:  a [..., M, K], b [..., K, N], leading axes broadcast -> y [..., M, N];
///          with output_by_head y is stored [..., M, H, N], where H is the last leading axis
/// Saves:   a, b
/// Throws:  ShapeError if the inner sizes differ or the leading axes do not broadcast
Tensor matmul(const Factor& a, const Factor& b, double scale = 1, bool output_by_head = false);

/// Throws:  ShapeError in the name of `op` unless x [..., In], weight [Out, In] and bias, if any, fit
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

/// Affine map of the last axis, with an activation applied in the same pass.
/// Math:    y = f(x weight^T + bias)
/// Grad:    dz = dy f'(z); dx = dz weight, dweight = dz^T x, dbias = sum of dz over all but the last axis
/// Shapes:  x [..., In], weight [Out, In], bias [Out] or undefined -> y [..., Out]
/// Saves:   x, weight, and for an activation y, or if f'(z) does not follow from y, f'(z), on a GPU z
/// Throws:  ShapeError if the sizes do not fit
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              std::optional<kernels::Unary> activation = {});

}  // namespace tapeformer
