#pragma once

#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <numeric>
#include <vector>

namespace tapeformer {

constexpr RotaryLayout kLayouts[] = {RotaryLayout::interleaved, RotaryLayout::half_split};

inline Tensor positions_from(Index first, Index count) {
  std::vector<std::int32_t> positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
  return integers(positions, {count});
}

inline RotaryConfig with(double base, RotaryLayout layout) {
  RotaryConfig config;
  config.base = base, config.layout = layout;
  return config;
}

}  // namespace tapeformer
