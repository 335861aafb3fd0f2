#pragma once

#include <tapeformer/examples/attention_modes.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

/// A layer with values and masks, ready to be differentiated.
struct CheckCase {
  std::shared_ptr<Module> module;    ///< null for an operation
  NamedTensors inputs;               ///< everything that gets a gradient, parameters included
  std::function<Tensor()> function;  ///< the output; the same one at every call
  Index parameters = 0;
};

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
