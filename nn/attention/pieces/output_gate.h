#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {

/// Factors of the heads' outputs: sigmoids of a projection of the query's input, one per head or one per
/// component.
enum class OutputGate { none, head, element };
template <>
inline constexpr EnumNames kNames<OutputGate>{"output_gate", {"none", "head", "element"}};

/// The gates that `output_gate` chooses.
/// Math:    y_h = sigmoid(W x)_h y_h, one gate for each head, or for each component of each head
/// Shapes:  W [H, C] or [H E, C]
/// Initial: Xavier uniform
/// Source:  Qiu et al. 2025, arXiv:2505.06708, equations 3 and 5
struct OutputGates {
  OutputGate output_gate = OutputGate::none;  ///< which gates, if any
  void describe(const FieldVisitor& in_models, const FieldVisitor& in_layers);
  static void complete(AttentionConfig& /*config*/) {}
  static MadePiece make(const AttentionConfig& config, Generator& random);
  static void add_cost(const AttentionConfig& config, CostSum& sum);
  static PieceCases cases();
};

}  // namespace tapeformer
