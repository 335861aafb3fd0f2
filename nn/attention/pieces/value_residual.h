#pragma once

#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {

/// Mixes AttentionContext::first_values, the values of the first layer of a stack, into this layer's.
/// Math:    v = m_0 v + m_1 first_values, m learned
/// Initial: m = (1/2, 1/2)
/// Source:  Zhou et al. 2024, arXiv:2410.17897, section 4.2
struct ValueResidual {
  bool value_residual = false;  ///< whether the first layer's values are mixed in
  void describe(const FieldVisitor& in_models, const FieldVisitor& in_layers);
  static void complete(AttentionConfig& config);
  static MadePiece make(const AttentionConfig& config, Generator& random);
  static void add_cost(const AttentionConfig& config, CostSum& sum);
  static PieceCases cases();
};

}  // namespace tapeformer
