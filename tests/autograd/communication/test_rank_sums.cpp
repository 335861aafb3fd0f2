#include <doctest/doctest.h>
#include <tapeformer/autograd/bfloat16.h>
#include <tapeformer/autograd/communication/rank_sums.h>

#include <vector>

using namespace tapeformer;

TEST_CASE("sums are taken in the order of the ranks") {
  // 2^24 + 1 is 2^24 in f32, so another order would give 2.
  const std::vector<float> from{0x1p24f, 1, -0x1p24f, 1};
  float sum = 0;
  add_ranks(DType::f32, from.data(), 4, 1, &sum);
  CHECK(sum == 1);
}

TEST_CASE("there may be any number of elements") {
  for (const Index count : {1, 31, 1024, 1025, 3000}) {
    std::vector<double> from(static_cast<std::size_t>(3 * count)), sums(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<double>(i);
    add_ranks(DType::f64, from.data(), 3, count, sums.data());
    for (Index i = 0; i < count; ++i) CHECK(sums[static_cast<std::size_t>(i)] == 3 * i + 3 * count);
  }
}

TEST_CASE("bf16 is summed in f32 and rounded once") {
  const std::vector<BFloat16> from{BFloat16(256.0f), BFloat16(1.0f), BFloat16(1.0f)};
  BFloat16 sum(0.0f);
  add_ranks(DType::bf16, from.data(), 3, 1, &sum);
  CHECK(static_cast<float>(sum) == 258);  // rounded after each sum it would be 256
}
