#pragma once

#include <tapeformer/examples/gradcheck/layer_case.h>

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

/// A layer to be checked in the modes that it takes.
struct CheckedLayer {
  std::string name;
  std::function<bool(const AttentionMode&)> takes;
  bool masks_by_head;  ///< a mask may differ from head to head
  std::function<CheckCase(CheckSetting&)> make;
};

/// Every attention layer and operation: one line each, and what it takes to make one.
std::vector<CheckedLayer> checked_layers();

}  // namespace tapeformer
