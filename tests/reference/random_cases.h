#pragma once

#include <tapeformer/tests/reference/sanitized.h>

#include <algorithm>
#include <cstdlib>

namespace tapeformer {

/// How many of `all` random cases a test tries: a third, a tenth under the address sanitizer, and all of
/// them where the environment has TAPEFORMER_ALL_CASES, as in tests/run.sh --slow and on GPUs.
inline int random_cases(int all) {
  if (std::getenv("TAPEFORMER_ALL_CASES") != nullptr) return all;
  return std::max(all / (is_sanitized() ? 10 : 3), 1);
}

}  // namespace tapeformer
