#pragma once

#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {

/// Bounds the scores.
/// Math:    s = c tanh(s / c)
/// Source:  Gemma Team 2024, arXiv:2408.00118
struct Softcap {
  double softcap = 0;  ///< c; 0 for none
  void describe(const FieldVisitor& in_models, const FieldVisitor& in_layers);
  static void complete(AttentionConfig& /*config*/) {}
  static MadePiece make(const AttentionConfig& config, Generator& random);
  static void add_cost(const AttentionConfig& config, CostSum& sum);
  static PieceCases cases();
};

}  // namespace tapeformer
