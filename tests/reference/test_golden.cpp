#include <doctest/doctest.h>
#include <tapeformer/tests/reference/golden.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace tapeformer;

TEST_CASE("values, ids, masks, names and options are found by case") {
  const Golden golden("ops");
  CHECK(golden.tensor("relu", "in.x").describe() == "f64[3,5,7]");
  CHECK(golden.tensor("relu", "in.x", DType::f32).dtype() == DType::f32);
  CHECK(golden.tensor("gather", "in.index").describe() == "i32[3,4,7]");
  CHECK(golden.tensor("where", "in.condition", DType::f32).dtype() == DType::boolean);
  CHECK(golden.names("linear", "grad.") == std::vector<std::string>{"bias", "weight", "x"});
  CHECK(golden.options("pow_fraction")["exponent"] == -1.5);
  const Tensor x = golden.tensor("exp", "in.x"), y = golden.tensor("exp", "out");
  CHECK_BELOW(relative_error(y, filled(x.shape(), [&](Index i) { return std::exp(x.at(i)); })), 1e-14);
}

TEST_CASE("errors are relative to the largest value of the reference") {
  CHECK(relative_error(values({1, 2.5}), values({1, 2})) == 0.25);
  CHECK(absolute_error(values({1, 2.5}), values({1, 2})) == 0.5);
  CHECK(relative_error(values({}), values({})) == 0);
  CHECK(relative_error(values({0}), values({0})) == 0);
  CHECK(std::isinf(relative_error(values({1}), values({0}))));
  CHECK(relative_error(values({INFINITY, 1}), values({INFINITY, 1})) == 0);
  CHECK(std::isnan(relative_error(values({NAN, 1}), values({0, 1}))));
  CHECK(std::isnan(relative_error(values({0, 1}), values({NAN, 1}))));
  CHECK_THROWS_AS(relative_error(values({1}), values({1, 2})), ShapeError);
}
