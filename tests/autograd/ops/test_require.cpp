#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("a broken rule is reported with the arguments and the remedy") {
  const Tensor x = Tensor::zeros({2, 3});
  const Shape shape{4};
  const Named both[] = {{"x", x}, {"shape", shape}};
  CHECK_NOTHROW(require(true, "op", "a rule", {both}));
  CHECK_THROWS_WITH_AS(require<DTypeError>(false, "op", "a rule", {{"axis", 3}, both}, "more"),
                       "[op] a rule; got axis=3, x=f32[2,3], shape=[4]; try more", DTypeError);
  CHECK_THROWS_WITH_AS(require(false, "op", "a rule", {{"scale", 0.5}}), "[op] a rule; got scale=0.5",
                       ShapeError);
}
