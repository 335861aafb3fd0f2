#pragma once

#include <cuda_emulator_hopper.h>

#include <vector>

namespace tapeformer {

/// A kernel and its fault.
template <class... Arguments>
struct RaceCaseOf {
  const char* name;
  const char* fault;  ///< a part of the message; nullptr: no fault
  void (*kernel)(Arguments...);
};
/// A kernel for 3 blocks of 64 threads with 64 floats of dynamic shared memory.
using RaceCase = RaceCaseOf<float*, std::int16_t*>;
/// A kernel for 256 threads, with asynchronous copies and products.
using HopperRaceCase = RaceCaseOf<const CUtensorMap&>;

/// Compiled so that their accesses are seen, except under sanitizers.
const std::vector<RaceCase>& race_cases();
const std::vector<HopperRaceCase>& hopper_race_cases();
bool accesses_are_seen();

}  // namespace tapeformer
