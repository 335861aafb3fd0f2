#pragma once

#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {

/// Rotary positions: pairs of components of queries and keys are rotated by angles that grow with the
/// position. Latent, differential and native sparse attention use it too.
/// Source:  Su et al. 2021, arXiv:2104.09864; see autograd/ops/rotary.h
class Rotary : public AttentionPiece {
 public:
  /// The piece for heads, or parts of heads, of this width.
  Rotary(const RotaryConfig& rotations, Index width) : rotations_(rotations), width_(width) {}

  /// Throws: Error unless the rotations of `config` fit heads, or parts of heads, of this width
  static void check(const AttentionConfig& config, Index width);

  /// Rotates queries and keys. Throws: Error unless the call is self-attention
  void change_heads(CallHeads& heads) const override;
  /// The context's angles, or those of its positions, of the cache's step, or of positions continued from the
  /// cached tokens. Must be called before this call's keys enter the cache.
  RotaryAngles angles(const Tensor& query, const AttentionContext& context) const override;

 private:
  RotaryConfig rotations_;
  Index width_;
};

/// The piece of multi-head attention. Its fields are members of AttentionConfig, since other kinds have them.
struct RotaryHeads {
  void describe(const FieldVisitor& /*in_models*/, const FieldVisitor& /*in_layers*/) {}
  static void complete(AttentionConfig& config);
  static MadePiece make(const AttentionConfig& config, Generator& random);
  static void add_cost(const AttentionConfig& config, CostSum& sum);
  static PieceCases cases();
};

}  // namespace tapeformer
