#pragma once

#include <tapeformer/nn/attention/pieces/distance_bias.h>
#include <tapeformer/nn/attention/pieces/exclusive.h>
#include <tapeformer/nn/attention/pieces/moba.h>
#include <tapeformer/nn/attention/pieces/output_gate.h>
#include <tapeformer/nn/attention/pieces/qk_norm.h>
#include <tapeformer/nn/attention/pieces/rotary.h>
#include <tapeformer/nn/attention/pieces/score_weights.h>
#include <tapeformer/nn/attention/pieces/softcap.h>
#include <tapeformer/nn/attention/pieces/value_residual.h>

namespace tapeformer {

/// A table of pieces. Their order is the order in which a call applies them, initial values are drawn, and
/// files hold their parameters. Each function asks every piece: see piece.h.
template <class... Pieces>
struct PieceTable {
  /// The fields of all pieces: AttentionConfig inherits them.
  struct Fields : Pieces... {
    /// Describes every piece's fields to the visitor that they belong to.
    void describe(const FieldVisitor& in_models, const FieldVisitor& in_layers) {
      (Pieces::describe(in_models, in_layers), ...);
    }
  };

  /// Completes a configuration with each piece's part. Throws: Error if a piece does not fit it
  static void complete(AttentionConfig& config) { (Pieces::complete(config), ...); }

  /// The pieces that a layer of this resolved config has.
  static std::vector<MadePiece> make(const AttentionConfig& config, Generator& random) {
    std::vector<MadePiece> made;
    const auto add = [&](MadePiece piece) {
      if (piece != nullptr) made.push_back(std::move(piece));
    };
    (add(Pieces::make(config, random)), ...);
    return made;
  }

  /// Adds the pieces' parts to the cost of a call of the layer.
  static void add_cost(const AttentionConfig& config, CostSum& sum) { (Pieces::add_cost(config, sum), ...); }

  /// The cases of all pieces.
  static PieceCases cases() {
    PieceCases all;
    for (const PieceCases& cases : {Pieces::cases()...}) all.insert(all.end(), cases.begin(), cases.end());
    return all;
  }
};

/// Every piece of multi-head attention.
using AttentionPieces = PieceTable<HeadNorms, Softcap, DistanceBias, ScoreWeights, ValueResidual, RotaryHeads,
                                   Exclusive, OutputGates, BlockMixture>;

}  // namespace tapeformer
