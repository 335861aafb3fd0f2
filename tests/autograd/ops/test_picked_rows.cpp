#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/picked_rows.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

#include <limits>

using namespace tapeformer;

TEST_SUITE("autograd/ops/picked_rows") {
  TEST_CASE("picked rows are copies, and have to be there") {
    const Tensor x = ids_of({1, 2, 3, 4, 5, 6}, {3, 2});
    const Tensor picked = picked_rows(x, {2, 0, 2, 1});
    CHECK(picked.to_vector<std::int32_t>() == std::vector<std::int32_t>{5, 6, 1, 2, 5, 6, 3, 4});
    CHECK(picked_rows(x, {}).shape() == Shape{0, 2});
    CHECK(message_of<ShapeError>([&] { picked_rows(x, {3}); }) ==
          "[picked_rows] rows must be there; got x=i32[3,2], row 3");
  }

  TEST_CASE("rows of every type keep their bits") {
    constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max(), kLeast = -kMost - 1;
    const Tensor whole = ids_of({kMost, kLeast, 16777217, -1}, {2, 2});
    CHECK(picked_rows(whole, {1, 0}).to_vector<std::int32_t>() ==
          std::vector<std::int32_t>{16777217, -1, kMost, kLeast});
    const Tensor flags = Tensor::full({3, 1, 2}, 0, DType::boolean);
    flags.copy_from(ids_of({1, 0, 0, 1, 1, 1}, {3, 1, 2}).to(DType::boolean));
    const Tensor picked = picked_rows(flags, {2, 0});
    CHECK(picked.dtype() == DType::boolean);
    CHECK(picked.shape() == Shape{2, 1, 2});
    CHECK(picked.to(DType::i32).to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 1, 1, 0});
    for (const DType type : {DType::f32, DType::f64}) {
      const Tensor x = random_values({4, 3, 5}, 1, type);
      const Tensor twice = picked_rows(x, {3, 3});
      CHECK(twice.shape() == Shape{2, 3, 5});
      for (Index i = 0; i < 30; ++i) CHECK(twice.at(i) == x.at(45 + i % 15));
    }
    CHECK(picked_rows(random_values({3}, 1), {2}).shape() == Shape{1});
  }

  TEST_CASE("no tape hears of it") {
    Tape tape;
    const Tensor x = random_values({2, 2}, 1);
    tape.watch(x);
    CHECK_FALSE(tape.tracks(picked_rows(x, {1})));
  }
}
