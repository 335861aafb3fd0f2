#pragma once

namespace tapeformer {

/// Under the address sanitizer, where everything takes ten to thirty times as long, a quarter of the cases.
template <class Count>
constexpr Count fewer_if_sanitized(Count cases) {
#if defined(__SANITIZE_ADDRESS__)
  return cases / 4;
#else
  return cases;
#endif
}

}  // namespace tapeformer
