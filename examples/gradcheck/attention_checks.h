#pragma once

#include <tapeformer/examples/gradcheck/attention_modes.h>
#include <tapeformer/nn/attention/attention_kind.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

/// A layer with its inputs, ready for the gradient check.
struct CheckCase {
  std::shared_ptr<Module> module;    ///< null for an operation
  NamedTensors inputs;               ///< everything whose gradient is checked, parameters included
  std::function<Tensor()> function;  ///< computes the output, the same in every call
  Index parameters = 0;
  double magnifies = 1;  ///< factor of the options' tolerance in f32
};

/// One row of the table: a layer in a mode.
struct AttentionCheck {
  std::string layer;
  AttentionMode mode;
  std::function<CheckCase(const CheckSizes&, DType)> make;
};

/// Every kind of attention, as it is and with options set, and every other layer and operation, in every mode
/// that it supports.
std::vector<AttentionCheck> attention_checks();

/// The checks of the named layers and modes; an empty list selects all. "self" and "cross" may be left out of
/// a mode's name. Throws: Error that lists the known names
std::vector<AttentionCheck> selected_checks(const std::vector<std::string>& layers,
                                            const std::vector<std::string>& modes);

/// The configuration of a layer of this kind with these sizes.
AttentionConfig attention_config(const CheckSizes& sizes, const AttentionKind& kind);

}  // namespace tapeformer
