#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/shape.h>
#include <tapeformer/autograd/ops/broadcast.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

namespace tapeformer {
namespace {

Tensor copy_strided(const char* op, const Tensor& x, const Shape& shape, const Index* strides) {
  kernels::Broadcast walk;
  walk.axes = shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    walk.sizes[axis] = shape[axis];
    walk.strides_a[axis] = strides[axis];
  }
  walk = merged(walk);
  if (walk.axes == 0) walk.axes = 1, walk.sizes[0] = 1;
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  dispatch(op, operands(x, y),
           [&](auto on, auto* from, auto* to) { kernels::copy_strided(on, walk, from, to); });
  return y;
}

/// Copies x [outer, width] into columns [to, to + width) of y, or those columns of x into y.
void copy_columns(const char* op, Index outer, Index width, Index width_x, Index from, Index width_y,
                  Index to, const Tensor& x, const Tensor& y) {
  dispatch(op, operands(x, y), [&](auto on, auto* px, auto* py) {
    kernels::copy_columns(on, outer, width, width_x, from, width_y, to, px, py);
  });
}

Shape with_size(Shape shape, int axis, Index size) {
  shape.set(axis, size);
  return shape;
}

Tensor slice_unrecorded(const Tensor& x, int axis, Index from, Index size) {
  Tensor y = Tensor::empty(with_size(x.shape(), axis, size), x.dtype(), x.device());
  const Index inner = x.shape().elements(axis + 1, x.rank());
  const Index wide = x.size(axis) * inner;
  copy_columns("slice", x.shape().elements(0, axis), size * inner, wide, from * inner, size * inner, 0, x, y);
  return y;
}

void check_index(const char* op, const Tensor& x, int axis, const Tensor& index, Index size) {
  bool fits = index.rank() == x.rank();
  for (int a = 0; fits && a < x.rank(); ++a) fits = a == axis || index.size(a) == x.size(a);
  require(fits, op, "index must match x except along the axis", {{"axis", axis}, {"x", x}, {"index", index}});
  require_same_device(op, "index", index, x);
  count_by({0, size}, index, [op, size, got = index.describe()](const cuda::DeviceErrorSlot& error) {
    return format("[{}] indices must be in [0, {}); got {} at element {} of index={}", op, size, error.value,
                  error.position, got);
  });
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return record(
      "reshape", {x}, {}, x.alias(shape),
      [from = x.shape()](const Tensor& dy, const Gradients& into) { into[0] += reshape(dy, from); });
}

Tensor reshape(const Tensor& x, std::initializer_list<Index> sizes) {
  Index known = 1;
  for (const Index size : sizes) known *= size == -1 ? 1 : size;
  Shape shape;
  for (const Index size : sizes) shape.append(size == -1 ? (known > 0 ? x.elements() / known : 0) : size);
  return reshape(x, shape);
}

Tensor permute(const Tensor& x, const Axes& order) {
  Shape shape;
  Index strides[Shape::kMaxRank] = {};
  Axes inverse(order.size(), -1);
  for (std::size_t i = 0; i < order.size() && static_cast<int>(order.size()) == x.rank(); ++i) {
    const int axis = x.shape().checked_axis(order[i]);
    strides[i] = x.shape().elements(axis + 1, x.rank());
    shape.append(x.size(axis));
    inverse[static_cast<std::size_t>(axis)] = static_cast<int>(i);
  }
  require(static_cast<int>(order.size()) == x.rank() && std::count(inverse.begin(), inverse.end(), -1) == 0,
          "permute", "the order must name every axis once", {{"x", x}});
  const Tensor y = copy_strided("permute", x, shape, strides);
  return record("permute", {x}, {}, y,
                [inverse](const Tensor& dy, const Gradients& into) { into[0] += permute(dy, inverse); });
}

Tensor transpose(const Tensor& x) {
  Axes order;
  for (int axis = 0; axis < x.rank(); ++axis) order.push_back(axis);
  require(x.rank() >= 2, "transpose", "x must have at least two axes", {{"x", x}});
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return permute(x, order);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  require(broadcast_shapes("broadcast_to", x.shape(), shape) == shape, "broadcast_to",
          "x must broadcast to the shape", {{"x", x}, {"shape", shape}});
  Index strides[Shape::kMaxRank] = {};
  broadcast_strides(shape, x.shape(), strides);
  const Tensor y = copy_strided("broadcast_to", x, shape, strides);
  return record("broadcast_to", {x}, {}, y,
                [from = x.shape()](const Tensor& dy, const Gradients& into) { into[0] += sum_to(dy, from); });
}

Tensor concat(const TensorList& parts, int axis) {
  if (parts.empty()) throw ShapeError("[concat] there must be at least one part");
  const Tensor& first = parts.front();
  const int at = first.shape().checked_axis(axis);
  PooledVector<Index> sizes;
  Index size = 0;
  for (const Tensor& part : parts) {
    require(part.rank() == first.rank() && with_size(part.shape(), at, 0) == with_size(first.shape(), at, 0),
            "concat", "parts must have the same shape except along the axis",
            {{"axis", at}, {"first", first}, {"part", part}});
    sizes.push_back(part.size(at));
    size += part.size(at);
  }
  Tensor y = Tensor::empty(with_size(first.shape(), at, size), first.dtype(), first.device());
  const Index outer = y.shape().elements(0, at), inner = y.shape().elements(at + 1, y.rank());
  Index from = 0;
  for (const Tensor& part : parts) {
    const Index width = part.size(at) * inner;
    copy_columns("concat", outer, width, width, 0, size * inner, from, part, y);
    from += width;
  }
  record_many("concat", parts, {y}, [at, sizes](const Tensor& dy, const Gradients& into) {
    Index begin = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (into[i]) into[i] += slice(dy, at, begin, sizes[i]);
      begin += sizes[i];
    }
  });
  return y;
}

Tensor slice(const Tensor& x, int axis, Index from, Index size) {
  const int at = x.shape().checked_axis(axis);
  require(from >= 0 && size >= 0 && from <= x.size(at) - size, "slice", "the range must be inside the axis",
          {{"x", x}, {"axis", axis}, {"from", from}, {"size", size}});
  if (size == x.size(at)) return x;
  const Tensor y = slice_unrecorded(x, at, from, size);
  return record("slice", {x}, {}, y, [at, from, whole = x.size(at)](const Tensor& dy, const Gradients& into) {
    into[0] += pad(dy, at, from, whole);
  });
}

TensorList split(const Tensor& x, int axis, const PooledVector<Index>& sizes) {
  const int at = x.shape().checked_axis(axis);
  Index total = 0, smallest = 0;
  for (const Index size : sizes) {
    total += size;
    smallest = std::min(smallest, size);
  }
  require(total == x.size(at) && smallest >= 0, "split", "sizes must add up to the axis, none below 0",
          {{"x", x}, {"axis", axis}, {"sum of sizes", total}});
  TensorList parts;
  Index from = 0;
  for (const Index size : sizes) {
    parts.push_back(slice_unrecorded(x, at, from, size));
    from += size;
  }
  PooledVector<Shape> shapes;
  for (const Tensor& part : parts) shapes.push_back(part.shape());
  record_many("split", {x}, parts,
              [at, shapes, type = x.dtype(), device = x.device()](const Tensor&, const Gradients& into) {
                TensorList gradients;
                for (std::size_t i = 0; i < shapes.size(); ++i) {
                  gradients.push_back(into.output(i).defined() ? into.output(i)
                                                               : Tensor::zeros(shapes[i], type, device));
                }
                into[0] += concat(gradients, at);
              });
  return parts;
}

Tensor pad(const Tensor& x, int axis, Index from, Index size) {
  const int at = x.shape().checked_axis(axis);
  require(from >= 0 && size >= x.size(at) && from <= size - x.size(at), "pad", "x must fit",
          {{"x", x}, {"from", from}, {"size", size}});
  Tensor y = Tensor::empty(with_size(x.shape(), at, size), x.dtype(), x.device());
  dispatch("zeros", operands(y), [&](auto on, auto* to) { kernels::fill(on, y.elements(), 0, to); });
  const Index inner = x.shape().elements(at + 1, x.rank()), width = x.size(at) * inner;
  copy_columns("pad", x.shape().elements(0, at), width, width, 0, size * inner, from * inner, x, y);
  return record("pad", {x}, {}, y, [at, from, width = x.size(at)](const Tensor& dy, const Gradients& into) {
    into[0] += slice(dy, at, from, width);
  });
}

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  const int at = x.shape().checked_axis(axis);
  check_index("gather", x, at, index, x.size(at));
  Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
  const Index outer = x.shape().elements(0, at), inner = x.shape().elements(at + 1, x.rank());
  const Index n = x.size(at), m = index.size(at);
  const std::int32_t* picks = index.address<std::int32_t>();
  dispatch("gather", operands(x, y),
           [&](auto on, auto* px, auto* py) { kernels::gather(on, outer, n, m, inner, picks, px, py); });
  return record("gather", {x}, {index}, y, [at, index, n](const Tensor& dy, const Gradients& into) {
    into[0] += scatter_add(dy, at, index, n);
  });
}

Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, Index size) {
  const int at = x.shape().checked_axis(axis);
  require(index.shape() == x.shape(), "scatter_add", "index must have the shape of x",
          {{"x", x}, {"index", index}});
  check_index("scatter_add", x, at, index, size);
  Tensor y = Tensor::empty(with_size(x.shape(), at, size), x.dtype(), x.device());
  const Index outer = x.shape().elements(0, at), inner = x.shape().elements(at + 1, x.rank());
  const Index m = index.size(at);
  const std::int32_t* picks = index.address<std::int32_t>();
  dispatch("scatter_add", operands(x, y), [&](auto on, auto* px, auto* py) {
    kernels::scatter_add(on, outer, size, m, inner, picks, px, py);
  });
  return record("scatter_add", {x}, {index}, y,
                [at, index](const Tensor& dy, const Gradients& into) { into[0] += gather(dy, at, index); });
}

}  // namespace tapeformer
