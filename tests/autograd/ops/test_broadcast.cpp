#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/broadcast.h>

using namespace tapeformer;

TEST_CASE("axes along which every operand is contiguous or repeats are merged") {
  const Shape result{2, 3, 4, 5};
  CHECK(broadcast_walk(result, result, result, result).axes == 1);
  CHECK(broadcast_walk(result, result, {}, result).axes == 1);
  CHECK(broadcast_walk(result, result, {4, 5}, result).axes == 2);
  CHECK(broadcast_walk(result, result, {2, 3, 1, 1}, result).axes == 2);
  CHECK(broadcast_walk(result, {2, 1, 4, 1}, {3, 1, 5}, result).axes == 4);
  CHECK(broadcast_walk({2, 1, 5}, {2, 1, 5}, {2, 1, 5}, {2, 1, 5}).axes == 1);
}
