#include <tapeformer/autograd/ops/broadcast.h>

namespace tapeformer {

void broadcast_strides(const Shape& result, const Shape& x, Index* strides) {
  Index stride = 1;
  for (int axis = result.rank() - 1; axis >= 0; --axis) {
    const int own = axis - (result.rank() - x.rank());
    const Index size = own < 0 ? 1 : x[own];
    strides[axis] = size == 1 ? 0 : stride;
    stride *= size;
  }
}

kernels::Broadcast merged(const kernels::Broadcast& walk) {
  kernels::Broadcast result;
  for (int axis = 0; axis < walk.axes; ++axis) {
    if (walk.sizes[axis] == 1) continue;
    const int last = result.axes - 1;
    const auto runs_on = [&](const Index* outer, const Index* inner) {
      return outer[last] == inner[axis] * walk.sizes[axis];
    };
    if (last >= 0 && runs_on(result.strides_a, walk.strides_a) && runs_on(result.strides_b, walk.strides_b) &&
        runs_on(result.strides_c, walk.strides_c)) {
      result.sizes[last] *= walk.sizes[axis];
    } else {
      result.sizes[result.axes++] = walk.sizes[axis];
    }
    const int to = result.axes - 1;
    result.strides_a[to] = walk.strides_a[axis];
    result.strides_b[to] = walk.strides_b[axis];
    result.strides_c[to] = walk.strides_c[axis];
  }
  return result;
}

kernels::Broadcast broadcast_walk(const Shape& result, const Shape& a, const Shape& b, const Shape& c) {
  kernels::Broadcast walk;
  walk.axes = result.rank();
  for (int axis = 0; axis < result.rank(); ++axis) walk.sizes[axis] = result[axis];
  broadcast_strides(result, a, walk.strides_a);
  broadcast_strides(result, b, walk.strides_b);
  broadcast_strides(result, c, walk.strides_c);
  walk = merged(walk);
  if (walk.axes == 0) {  // one element
    walk.axes = 1;
    walk.sizes[0] = 1;
  }
  return walk;
}

}  // namespace tapeformer
