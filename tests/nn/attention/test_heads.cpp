#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_SUITE("nn/attention/heads") {
  TEST_CASE("a width that is left out is the heads' share of the whole") {
    const PackedHeads both = resolved_heads("op", 12, 0, {4, 2, 0, 0});
    CHECK(both.heads == 4);
    CHECK(both.groups == 2);
    CHECK(both.key_width == 3);
    CHECK(both.value_width == 3);
    const PackedHeads values = resolved_heads("op", 12, 0, {4, 4, 5, 0});
    CHECK(values.key_width == 5);
    CHECK(values.value_width == 3);
    CHECK(resolved_heads("op", 10, 0, {4, 4, 5, 6}).value_width == 6);  // nothing is left to the width
    const PackedHeads wider = resolved_heads("op", 3, 20, {4, 4, 0, 0});
    CHECK(wider.key_width == 5);
    CHECK(wider.value_width == 5);
  }

  TEST_CASE("sizes that do not fit are refused by name and value") {
    const auto refused = [](Index width, const PackedHeads& heads, Index output_width = 0) {
      return message_of<Error>([&] { resolved_heads("op", width, output_width, heads, "kind=x, "); });
    };
    CHECK(refused(0, {1, 1, 2, 2}) == "[op] width and heads must be positive; got kind=x, width=0, heads=1");
    CHECK(refused(12, {-1, 1, 2, 2}) ==
          "[op] width and heads must be positive; got kind=x, width=12, heads=-1");
    CHECK(refused(12, {4, 3, 0, 0}) ==
          "[op] heads must be a multiple of groups; got kind=x, heads=4, groups=3");
    CHECK(refused(12, {4, 0, 0, 0}) ==
          "[op] heads must be a multiple of groups; got kind=x, heads=4, groups=0");
    CHECK(refused(12, {4, 4, -3, 0}) == "[op] no size may be negative; got kind=x, key_width=-3");
    CHECK(refused(12, {4, 4, 0, -3}) == "[op] no size may be negative; got kind=x, value_width=-3");
    CHECK(refused(10, {4, 4, 3, 0}) ==
          "[op] width must be divisible by heads; got kind=x, width=10, heads=4; try a width that is a "
          "multiple of the heads");
    CHECK(refused(12, {4, 4, 3, 0}, 10) ==
          "[op] output_width must be divisible by heads; got kind=x, output_width=10, heads=4; try a width "
          "that is a multiple of the heads");
    CHECK(refused(12, {4, 4, 0, 0}, -8) == "[op] no size may be negative; got kind=x, output_width=-8");
  }

  TEST_CASE("columns become heads and go side by side again") {
    const Tensor x = random_values({2, 3, 8}, 1);
    const Tensor heads = split_heads(x, 4);
    CHECK(heads.shape() == Shape{2, 3, 4, 2});
    CHECK(same_bits(merge_heads(heads), x));
  }
}
