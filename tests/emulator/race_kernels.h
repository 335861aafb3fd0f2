#pragma once

#include <cstdint>
#include <vector>

namespace tapeformer {

/// A kernel for 3 blocks of 64 threads with 64 floats of dynamic shared memory, and its verdict.
struct RaceCase {
  const char* name;
  const char* fault;  ///< a part of the message; nullptr: no fault
  void (*kernel)(float* global, std::int16_t* halves);
};
/// Compiled so that their accesses are seen, except under sanitizers.
const std::vector<RaceCase>& race_cases();
bool accesses_are_seen();

}  // namespace tapeformer
