#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/reduce.h>
#include <tapeformer/autograd/kernels/sparse_attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>

#include <array>
#include <limits>

namespace tapeformer {
namespace {

using AxisFlags = std::array<bool, Shape::kMaxRank>;

/// The reduced axes, the number of elements along them, and the shape with size 1 there, and without them.
struct Reduction {
  AxisFlags reduced{};
  Index count = 1;
  Shape kept, dropped;
};
Reduction reduction_of(const Shape& shape, const Axes& axes) {
  Reduction result;
  if (axes.empty()) result.reduced.fill(true);
  for (const int axis : axes) result.reduced[static_cast<std::size_t>(shape.checked_axis(axis))] = true;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool gone = result.reduced[static_cast<std::size_t>(axis)];
    result.kept.append(gone ? 1 : shape[axis]);
    if (!gone) result.dropped.append(shape[axis]);
    result.count *= gone ? shape[axis] : 1;
  }
  return result;
}

/// Applies `reduce(outer, n, inner, x, y)` to each run of adjacent reduced axes, last first. The result is of
/// `type`, with size 1 at those axes.
template <class Reduce>
Tensor reduce_runs(const Tensor& x, const AxisFlags& reduced, DType type, const Reduce& reduce) {
  Tensor current = x;
  for (int end = x.rank(); end > 0;) {
    if (!reduced[static_cast<std::size_t>(end - 1)]) {
      --end;
      continue;
    }
    int begin = end - 1;
    while (begin > 0 && reduced[static_cast<std::size_t>(begin - 1)]) --begin;
    Shape shape = current.shape();
    for (int axis = begin; axis < end; ++axis) shape.set(axis, 1);
    Tensor y = Tensor::empty(shape, type, x.device());
    reduce(current.shape().elements(0, begin), current.shape().elements(begin, end),
           current.shape().elements(end, x.rank()), current, y);
    current = y;
    end = begin;
  }
  return current;
}

/// Sums in the wide type, and rounds once at the end.
Tensor sum_unrecorded(const char* op, const Tensor& x, const AxisFlags& reduced) {
  const auto sum = [op](Index outer, Index n, Index inner, const Tensor& from, const Tensor& to) {
    dispatch(op, operands(from, wide(to)), [&](auto on, auto* px, auto* py) {
      kernels::reduce_sum(on, outer, n, inner, px, {py, false});
    });
  };
  return reduce_runs(x, reduced, wide(x.dtype()), sum).to(x.dtype());
}

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, bool keep_axes) {
  const Reduction s = reduction_of(x.shape(), axes);
  const Tensor y = sum_unrecorded("sum", x, s.reduced).alias(keep_axes ? s.kept : s.dropped);
  return record("sum", {x}, {}, y,
                [from = x.shape(), kept = s.kept](const Tensor& dy, const Gradients& into) {
                  into[0] += broadcast_to(reshape(dy, kept), from);
                });
}

Tensor mean(const Tensor& x, const Axes& axes, bool keep_axes) {
  const auto count = static_cast<double>(reduction_of(x.shape(), axes).count);
  return affine(sum(x, axes, keep_axes), 1 / count, 0);
}

Tensor var(const Tensor& x, const Axes& axes, bool keep_axes, double correction) {
  const auto count = static_cast<double>(reduction_of(x.shape(), axes).count);
  const Tensor centred = x - mean(x, axes, true);
  return affine(sum(centred * centred, axes, keep_axes), 1 / (count - correction), 0);
}

Tensor largest_places(const Tensor& x, Index count) {
  require(x.rank() == 2 && count > 0 && count <= x.size(1) &&
              x.elements() <= std::numeric_limits<std::int32_t>::max(),
          "largest_places", "x must be a matrix, with 1 to N of N columns chosen, and places fit in 32 bits",
          {{"x", x}, {"count", count}});
  const Tensor scores = x.to(wide(x.dtype())),
               places = Tensor::empty({x.size(0), count}, DType::i32, x.device());
  const kernels::KeysOfQueries chosen{x.size(0), 1, x.size(1), count, places.address<std::int32_t>()};
  dispatch("largest_places", operands(wide(scores)),
           [&](auto on, auto* from) { kernels::choose_largest(on, chosen, from); });
  return places;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  broadcast_shapes("sum_to", x.shape(), shape);  // refuses two shapes that merely have as many elements
  AxisFlags reduced{};
  const int lead = x.rank() - shape.rank();
  for (int axis = 0; axis < x.rank(); ++axis) {
    reduced[static_cast<std::size_t>(axis)] = axis < lead || (shape[axis - lead] == 1 && x.size(axis) != 1);
  }
  const Tensor y = sum_unrecorded("sum_to", x, reduced).alias(shape);
  return record("sum_to", {x}, {}, y, [from = x.shape()](const Tensor& dy, const Gradients& into) {
    into[0] += broadcast_to(dy, from);
  });
}

}  // namespace tapeformer
