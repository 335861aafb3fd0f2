#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/piecewise_constant.h>

#include <doctest/doctest.h>

#include <vector>

using namespace tapeformer;

TEST_CASE("values change at their shares of the steps") {
  const PiecewiseConstant rows("0.25:16,0.5:32", 8);
  CHECK(rows.at(0, 100) == 8);
  CHECK(rows.at(24, 100) == 8);
  CHECK(rows.at(25, 100) == 16);
  CHECK(rows.at(49, 100) == 16);
  CHECK(rows.at(50, 100) == 32);
  CHECK(rows.at(99, 100) == 32);
  CHECK(rows.at(1000, 100) == 32);
  CHECK(rows.changes(100) == std::vector<Index>{25, 50});
  CHECK(rows.changes(10) == std::vector<Index>{3, 5});  // 2.5 steps are over at step 3
  const PiecewiseConstant rounded("0.07:16,0.55:32", 8);
  CHECK(rounded.changes(100) == std::vector<Index>{7, 55});
  CHECK(rounded.at(7, 100) == 16);
  CHECK(rows.at(2, 10) == 8);
  CHECK(rows.at(3, 10) == 16);
  CHECK(rows.largest() == 32);
  CHECK(PiecewiseConstant("", 8).at(5, 10) == 8);
  CHECK(PiecewiseConstant("", 8).largest() == 8);
  CHECK(PiecewiseConstant("0:4", 8).at(0, 10) == 4);
  CHECK(PiecewiseConstant("0:4", 8).largest() == 4);
  CHECK(PiecewiseConstant("0.1:4", 8).largest() == 8);
}

TEST_CASE("malformed schedules are refused") {
  for (const char* text :
       {"16", "0.5", ":", "0.5:", ":16", "0.5:16;0.6:8", "x:16", "0.5:x", "0.5:1.5", "0.5:0", "0.5:-4", "1:4",
        "-0.1:4", "0.5:4,0.5:8", "0.5:4,0.2:8", "nan:4", "0.5:99999999999999999999", "0.5:16 "}) {
    CAPTURE(text);
    CHECK_THROWS_AS(PiecewiseConstant(text, 8), Error);
  }
}
