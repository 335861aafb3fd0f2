#pragma once

#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {

/// Removes from each head's output its part along the token's own value, in self-attention.
/// Math:    z_h = y_h - (y_h . v_g) v_g / |v_g|^2, with v_g the value that head h reads for its own token
/// Source:  Zhai 2026, arXiv:2603.09078
struct Exclusive {
  bool exclusive = false;  ///< whether the part along the token's own value is removed
  void describe(const FieldVisitor& in_models, const FieldVisitor& in_layers);
  static void complete(AttentionConfig& config);
  static MadePiece make(const AttentionConfig& config, Generator& random);
  static void add_cost(const AttentionConfig& config, CostSum& sum);
  static PieceCases cases();
};

/// Shapes:  y [B, T, H, E], values [B, T, G, E] -> [B, T, H, E]
Tensor without_own_value(const Tensor& y, const Tensor& values);

}  // namespace tapeformer
