#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// x in another shape: the same elements in the same order; free.
/// Throws:  ShapeError if the number of elements differs
Tensor reshape(const Tensor& x, const Shape& shape);
/// As above; one size may be -1 and follows from the others.
Tensor reshape(const Tensor& x, std::initializer_list<Index> sizes);

/// y's axis i is x's axis order[i]; copies.
/// Throws:  ShapeError unless `order` names every axis once
Tensor permute(const Tensor& x, const Axes& order);
/// Swaps the last two axes; copies. Matrix products take transposed(x) instead.
Tensor transpose(const Tensor& x);

/// Repeats x along axes of size 1 and new leading axes.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

/// Shapes:  parts [..., N_i, ...], equal except along `axis` -> y [..., sum N_i, ...]
Tensor concat(const TensorList& parts, int axis);
/// The elements [from, from + size) along `axis`.
Tensor slice(const Tensor& x, int axis, Index from, Index size);
/// Shapes:  x [..., sum sizes, ...] -> one tensor for every size
TensorList split(const Tensor& x, int axis, const PooledVector<Index>& sizes);
/// Surrounds x with zeros: y's size along `axis` is `size`, x begins at `from`. The gradient of slice.
Tensor pad(const Tensor& x, int axis, Index from, Index size);

/// y[..., j, ...] = x[..., index[..., j, ...], ...] along `axis`, as torch.gather.
/// Shapes:  index i32, equal to x except along `axis` -> y as index
/// Throws:  ShapeError if shapes do not fit or an index is outside [0, N)
Tensor gather(const Tensor& x, int axis, const Tensor& index);
/// Adds x's elements to zeros of size `size` along `axis`; the gradient of gather.
/// Shapes:  index i32, as x -> y as x except along `axis`
/// Throws:  ShapeError if shapes do not fit or an index is outside [0, size)
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, Index size);

}  // namespace tapeformer
