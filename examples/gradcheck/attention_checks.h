#pragma once

#include <tapeformer/examples/gradcheck/layer_case.h>

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

/// One line of the table: a layer in a mode.
struct AttentionCheck {
  std::string layer;
  AttentionMode mode;
  std::function<CheckCase(const CheckSizes&, DType)> make;
};

/// Every layer in every mode that it knows.
std::vector<AttentionCheck> attention_checks();

/// Those whose layer and mode are named; an empty list names all. A mode may be named without "self" or
/// "cross". Throws: Error listing the names there are.
std::vector<AttentionCheck> selected_checks(const std::vector<std::string>& layers,
                                            const std::vector<std::string>& modes);

}  // namespace tapeformer
