#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/broadcast.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

namespace {

/// Every element of `result` must be found where plain indexing finds it.
void check_walk(const kernels::Broadcast& walk, const Shape& result, const Shape& a, const Shape& b,
                const Shape& c) {
  REQUIRE(walk.axes >= 1);
  CHECK(walk.elements() == result.elements());
  const auto positions = [](const Shape& shape) {
    return filled(shape, [](Index i) { return static_cast<double>(i); });
  };
  const Tensor in_a = positions(a), in_b = positions(b), in_c = positions(c);
  bool same = true;
  for (Index i = 0; i < result.elements(); ++i) {
    Index at_a = 0, at_b = 0, at_c = 0, rest = i;
    for (int axis = walk.axes - 1; axis >= 0; --axis) {
      const Index at = rest % walk.sizes[axis];
      rest /= walk.sizes[axis];
      at_a += at * walk.strides_a[axis];
      at_b += at * walk.strides_b[axis];
      at_c += at * walk.strides_c[axis];
    }
    same = same && at_a == static_cast<Index>(broadcast_at(in_a, result, i)) &&
           at_b == static_cast<Index>(broadcast_at(in_b, result, i)) &&
           at_c == static_cast<Index>(broadcast_at(in_c, result, i));
  }
  CHECK(same);
  const int last = walk.axes - 1;
  for (const Index stride : {walk.strides_a[last], walk.strides_b[last], walk.strides_c[last]}) {
    CHECK((stride == 0 || stride == 1));
  }
}

}  // namespace

TEST_SUITE("autograd/ops/broadcast") {
  TEST_CASE("a walk finds the elements that plain indexing finds") {
    const Shape result{2, 3, 4, 5};
    const Shape operands[] = {{2, 3, 4, 5}, {5},          {4, 1},       {3, 1, 1},
                              {2, 1, 1, 1}, {1, 3, 1, 5}, {2, 1, 4, 1}, {}};
    for (const Shape& a : operands) {
      for (const Shape& b : operands) {
        for (const Shape& c : {result, Shape{4, 5}, Shape{1}})
          check_walk(broadcast_walk(result, a, b, c), result, a, b, c);
      }
    }
    check_walk(broadcast_walk({}, {}, {1}, {}), {}, {}, {1}, {});
    check_walk(broadcast_walk({1, 1}, {1}, {}, {1, 1}), {1, 1}, {1}, {}, {1, 1});
    check_walk(broadcast_walk({7, 1}, {7, 1}, {1}, {7, 1}), {7, 1}, {7, 1}, {1}, {7, 1});
    check_walk(broadcast_walk({3, 0}, {3, 1}, {0}, {3, 0}), {3, 0}, {3, 1}, {0}, {3, 0});
  }

  TEST_CASE("axes along which every operand runs on or repeats are merged") {
    const Shape result{2, 3, 4, 5};
    CHECK(broadcast_walk(result, result, result, result).axes == 1);
    CHECK(broadcast_walk(result, result, {}, result).axes == 1);
    CHECK(broadcast_walk(result, result, {4, 5}, result).axes == 2);
    CHECK(broadcast_walk(result, result, {2, 3, 1, 1}, result).axes == 2);
    CHECK(broadcast_walk(result, {2, 1, 4, 1}, {3, 1, 5}, result).axes == 4);
    CHECK(broadcast_walk({2, 1, 5}, {2, 1, 5}, {2, 1, 5}, {2, 1, 5}).axes == 1);
  }
}
