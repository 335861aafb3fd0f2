#pragma once

#include <cstdint>
#include <cstdlib>

namespace tapeformer {

/// The number in the environment's TAPEFORMER_TEST_SEED, 0 without it: shake.sh tries tests on other draws.
inline std::uint64_t seed_of_tests() {
  static const char* const text = std::getenv("TAPEFORMER_TEST_SEED");
  static const std::uint64_t seed = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  return seed;
}

/// The seed that a test draws from, where `own` is the number in the test: `own` itself unless the
/// environment has a seed for all tests. For the first two thousand of those it fits an int.
inline std::uint64_t test_seed(std::uint64_t own) { return own + 1'000'003 * seed_of_tests(); }

}  // namespace tapeformer
