#pragma once

#include <cuda_emulator_hopper.h>

#include <vector>

namespace tapeformer {

/// A kernel of 256 threads whose accesses are seen, and its fault; nullptr: none.
struct HopperRaceCase {
  const char* name;
  const char* fault;
  void (*kernel)(const CUtensorMap& map);
};
const std::vector<HopperRaceCase>& hopper_race_cases();

}  // namespace tapeformer
