#pragma once

#include <cstdlib>

// There when the program is linked with the address sanitizer.
extern "C" void __asan_init() __attribute__((weak));

namespace tapeformer {

inline bool is_sanitized() { return &__asan_init != nullptr; }

/// Where everything takes ten to thirty times as long: under the address sanitizer, and where the environment
/// has TAPEFORMER_FEW_CASES, as under the emulator's race detector.
inline bool tries_few() { return is_sanitized() || std::getenv("TAPEFORMER_FEW_CASES") != nullptr; }

/// A quarter of the cases there.
template <class Count>
Count fewer_if_sanitized(Count cases) {
  return tries_few() ? cases / 4 : cases;
}

/// True for the cases of a list that are tried: every fourth there, else all.
template <class Count>
bool is_tried(Count i) {
  return !tries_few() || i % 4 == 0;
}

}  // namespace tapeformer
