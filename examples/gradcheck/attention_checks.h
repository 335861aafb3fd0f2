#pragma once

#include <tapeformer/examples/gradcheck/layer_case.h>

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

/// One row of the table: a layer in a mode.
struct AttentionCheck {
  std::string layer;
  AttentionMode mode;
  std::function<CheckCase(const CheckSizes&, DType)> make;
};

/// Every layer in every mode that it supports.
std::vector<AttentionCheck> attention_checks();

/// The checks of the named layers and modes; an empty list selects all. "self" and "cross" may be left out of
/// a mode's name. Throws: Error that lists the known names
std::vector<AttentionCheck> selected_checks(const std::vector<std::string>& layers,
                                            const std::vector<std::string>& modes);

}  // namespace tapeformer
