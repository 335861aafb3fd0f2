#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/rotary.h>

#include <algorithm>

namespace tapeformer {
namespace {

Tensor turned(const Tensor& x, const Tensor& table, const kernels::Rotation& rotation) {
  const Tensor y = Tensor::empty_like(x);
  dispatch(
      "rotary",
      [&](auto on, auto* angles, auto* from, auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        kernels::rotate(on, rotation, angles, from, kernels::Write<T>{to, false});
      },
      table, x, y);
  return record("rotary", {x}, {table}, y, [table, rotation](const Tensor& dy, const Gradients& into) {
    kernels::Rotation back = rotation;
    back.inverse = !rotation.inverse;
    if (into.recorded()) {
      into[0] += turned(dy, table, back);
      return;
    }
    dispatch(
        "rotary",
        [&](auto on, auto* angles, auto* from, auto to) { kernels::rotate(on, back, angles, from, to); },
        table, dy, into[0]);
  });
}

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& positions, double base, RotaryLayout layout) {
  if (x.rank() != 4 || x.size(3) % 2 != 0 ||
      (positions.shape() != Shape{x.size(1)} && positions.shape() != Shape{x.size(0), x.size(1)})) {
    throw ShapeError("[rotary] x must be [B, T, H, D] with an even D, positions [T] or [B, T]; got x=" +
                     x.describe() + ", positions=" + positions.describe());
  }
  require_i32("rotary", "positions", positions);
  const Index count = positions.elements();
  kernels::Rotation rotation;
  rotation.rows = x.size(0) * x.size(1), rotation.heads = x.size(2), rotation.pairs = x.size(3) / 2;
  rotation.period = std::max<Index>(count, 1), rotation.layout = layout;
  const std::int32_t* at = positions.data<std::int32_t>();
  const Tensor table = Tensor::empty({count, 2, rotation.pairs}, x.dtype(), x.device());
  dispatch(
      "rotary",
      [&](auto on, auto* angles) { kernels::rotary_table(on, count, rotation.pairs, base, at, angles); },
      table);
  return turned(x, table, rotation);
}

}  // namespace tapeformer
