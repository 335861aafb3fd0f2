#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/nn/attention/attention.h>

namespace tapeformer {

struct AttentionConfig;
class CostSum;

/// Queries, keys and values of one call, between a layer's projections and its scores. They are packed in
/// the rows of one tensor as long as every piece works on packed rows, and separate afterwards.
struct CallHeads {
  const Tensor& input_btc;          ///< of the queries
  const AttentionContext& context;  ///< of the call: cache, positions and shared tensors
  bool is_self;                     ///< keys and values are made from the queries' input
  PackedHeads sizes;                ///< the numbers and widths of the heads
  Tensor packed_btn = {};           ///< [B, T, (H + G) D + G E], or undefined
  Tensor query_bthd = {};           ///< [B, T, H, D]; see query()
  KeyValueHeads new_kv = {};        ///< of this call; undefined where the cache or another layer has them
  Tensor own_value_bsge = {};       ///< values that a piece keeps for its change_output()

  /// Splits packed rows into their parts.
  void take_apart();
  /// The queries, copied out of packed rows at the first call.
  const Tensor& query();
  /// The keys of this call, copied out of packed rows at the first call.
  const Tensor& key();
  /// The values of this call, or another layer's, where the context shares them.
  const Tensor& value();
  /// Frees all but own_value_bsge, once the scores have been computed.
  void release();
};

/// A piece of a layer of multi-head attention, which changes the computation of a call. The layer names its
/// parameters: a piece is not a level of the path.
class AttentionPiece : public Module {
 public:
  /// Changes queries, keys and values before the scores are computed.
  virtual void change_heads(CallHeads& /*heads*/) const {}
  /// `type` is that of the sums of scores; T queries meet S keys.
  virtual void change_scores(AttentionOptions& /*options*/, DType /*type*/, Index /*T*/, Index /*S*/) const {}
  /// Shapes:  y [B, T, H, E] -> [B, T, H, E]
  virtual Tensor change_output(const Tensor& y_bthe, const CallHeads& /*heads*/) const { return y_bthe; }
  /// See Attention::angles().
  virtual RotaryAngles angles(const Tensor& /*query*/, const AttentionContext& /*context*/) const {
    return {};
  }
  void visit(ParameterVisitor& /*visitor*/) override {}
};
/// The piece of one layer; null if its configuration has none.
using MadePiece = std::unique_ptr<AttentionPiece>;

/// A configuration with a piece, for tests and gradient checks of all pieces.
struct PieceCase {
  const char* name;                  ///< "grouped_query_gates"
  const char* kind;                  ///< of the layer: "gqa"
  void (*choose)(AttentionConfig&);  ///< sets the fields that turn the piece on
  bool only_self = false;            ///< the piece is for self-attention
  bool is_discrete = false;          ///< its gradient jumps where a choice changes
};
/// The configurations with which a piece is tested.
using PieceCases = std::vector<PieceCase>;

// A row of the table in pieces.h is a struct of a piece's fields, which AttentionConfig inherits. It has
//   describe(in_models, in_layers)  describes them to the visitor of fields that are also a model's, or of
//                                   fields that a model sets
//   complete(config)                its part of AttentionConfig::resolved(). Throws: Error
//   make(config, random)            the piece of a layer of this resolved config, or null
//   add_cost(config, sum)           its part of the layer's cost
//   cases()                         configurations to test it with

}  // namespace tapeformer
