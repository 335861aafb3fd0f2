#include <doctest/doctest.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/tests/reference/check_below.h>
#include <tapeformer/tests/reference/seed.h>

#include <array>
#include <cstdlib>

using namespace tapeformer;

TEST_CASE("the first values of SplitMix64 with seed 0 are the published ones") {
  CHECK(mix_bits(0) == 0xe220a8397b1dcdafu);
  CHECK(mix_bits(0x9e3779b97f4a7c15u) == 0x6e789e6aa1b965f4u);
}

TEST_CASE("FNV-1a of known texts") {
  CHECK(hash_text("") == 0xcbf29ce484222325u);
  CHECK(hash_text("a") == 0xaf63dc4c8601ec8cu);
  CHECK(hash_text("foobar") == 0x85944171f73967e8u);
}

TEST_CASE("bounded values cover their range evenly") {
  std::array<int, 7> counts{};
  for (std::uint64_t i = 0; i < 70000; ++i) ++counts.at(bounded(mix_bits(test_seed(42), i), 7));
  for (const int count : counts) CHECK_BELOW(std::abs(count - 10000), kDeviations * std::sqrt(1e4 * 6 / 7));
  CHECK(bounded(~std::uint64_t{0}, 7) == 6);
}
