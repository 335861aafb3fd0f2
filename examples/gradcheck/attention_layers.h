#pragma once

#include <tapeformer/examples/gradcheck/layer_case.h>
#include <tapeformer/nn/attention/attention_kind.h>

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

/// Every kind of attention, every other layer and operation, and the kinds with options set.
std::vector<CheckedLayer> checked_layers();

/// A layer of this kind, of these sizes.
AttentionConfig attention_config(const CheckSizes& sizes, const AttentionKind& kind);

}  // namespace tapeformer
