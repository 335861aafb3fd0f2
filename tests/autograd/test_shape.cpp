#include <doctest/doctest.h>
#include <tapeformer/autograd/shape.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

TEST_CASE("sizes are read from either end") {
  const Shape shape{2, 3, 5};
  CHECK(shape.rank() == 3);
  CHECK(shape[0] == 2);
  CHECK(shape[-1] == 5);
  CHECK(shape[-3] == 2);
  CHECK(shape.elements() == 30);
  CHECK(shape.elements(1, 3) == 15);
  CHECK(shape.elements(1, 1) == 1);
  CHECK(std::vector<Index>(shape.begin(), shape.end()) == std::vector<Index>{2, 3, 5});
}

TEST_CASE("a scalar has no axes; shapes are equal when every size is, and have a text") {
  CHECK(Shape{}.rank() == 0);
  CHECK(Shape{}.elements() == 1);
  CHECK(Shape{4, 0, 3}.elements() == 0);
  Shape shape{2, 3};
  shape.set(-1, 7);
  shape.append(4);
  CHECK(shape == Shape{2, 7, 4});
  CHECK(shape != Shape{2, 4, 7});
  CHECK(shape != Shape{2, 7});
  CHECK(Shape{2, 8, 64}.text() == "[2,8,64]");
  CHECK(Shape{}.text() == "[]");
  CHECK(Shape{0}.text() == "[0]");
}

TEST_CASE("axes outside the rank, a ninth axis and negative sizes are refused") {
  const Shape shape{2, 3};
  CHECK(message_of<ShapeError>([&] { return shape[2]; }) ==
        "[shape] axis must be in [-rank, rank); got axis=2 of [2,3]");
  CHECK(message_of<ShapeError>([&] { return shape[-3]; }) ==
        "[shape] axis must be in [-rank, rank); got axis=-3 of [2,3]");
  CHECK_THROWS_WITH_AS(Shape({1, 1, 1, 1, 1, 1, 1, 1, 2}),
                       "[shape] at most 8 axes; got one more than [1,1,1,1,1,1,1,1]", ShapeError);
  CHECK(message_of<ShapeError>([] { Shape({3, -1}); }) == "[shape] sizes must not be negative; got -1");
}

TEST_CASE("broadcasting aligns at the last axis and repeats sizes of one") {
  CHECK(broadcast_shapes("add", {3, 1, 7}, {5, 1}) == Shape{3, 5, 7});
  CHECK(broadcast_shapes("add", {}, {2, 3}) == Shape{2, 3});
  CHECK(broadcast_shapes("add", {2, 3}, {}) == Shape{2, 3});
  CHECK(broadcast_shapes("add", {1}, {0}) == Shape{0});
  CHECK(broadcast_shapes("add", {0, 1}, {1, 4}) == Shape{0, 4});
  CHECK_THROWS_WITH_AS(
      broadcast_shapes("add", {2, 3}, {2, 4}),
      "[add] sizes must be equal or 1, aligned at the last axis; got a=[2,3], b=[2,4] (3 != 4); try reshape",
      ShapeError);
  CHECK(message_of<ShapeError>([] { broadcast_shapes("where", {0}, {2}); }) ==
        "[where] sizes must be equal or 1, aligned at the last axis; got a=[0], b=[2] (0 != 2); try reshape");
}

TEST_CASE("a number of elements that overflows is refused") {
  const Index large = Index{1} << 32;
  CHECK_THROWS_AS((Shape{large, large}), ShapeError);
  CHECK(message_of<ShapeError>([] { Tensor::empty({Index{1} << 62}); }) ==
        "[shape] a tensor must have fewer than 2^60 elements; got size 4611686018427387904 for axis 0 of []");
  CHECK(Shape{(Index{1} << 60) - 1}.elements() == (Index{1} << 60) - 1);
  CHECK_THROWS_AS((Shape{Index{1} << 60}), ShapeError);
  Shape shape{2, 3};
  CHECK_THROWS_AS(shape.set(0, Index{1} << 60), ShapeError);
  CHECK(message_of<ShapeError>([&] { shape.set(1, -3); }) == "[shape] sizes must not be negative; got -3");
  CHECK(shape == Shape{2, 3});
  shape.set(0, (Index{1} << 60) / 3);
}
