#pragma once

#include <cstddef>

// There when the program is linked with the address sanitizer.
extern "C" void __asan_init() __attribute__((weak));

namespace tapeformer {

inline bool is_sanitized() { return &__asan_init != nullptr; }

/// Under the address sanitizer, where everything takes ten to thirty times as long, a quarter of the cases.
template <class Count>
Count fewer_if_sanitized(Count cases) {
  return is_sanitized() ? cases / 4 : cases;
}

/// True for the cases of a list that are tried: every fourth under the address sanitizer, else all.
inline bool is_tried(std::size_t i) { return !is_sanitized() || i % 4 == 0; }

}  // namespace tapeformer
