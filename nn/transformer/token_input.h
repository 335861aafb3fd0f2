#pragma once

#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/embedding.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/positions.h>

#include <optional>

namespace tapeformer {

struct TokenInputConfig {
  Index vocabulary = 0;                               ///< V
  Index width = 0;                                    ///< C
  double dropout = 0;                                 ///< on the sum
  PositionKind positions = PositionKind::sinusoidal;  ///< added here, or part of attention
  Index max_length = 256;                             ///< longest sequence
  double scale = 0;                                   ///< factor of the embeddings; 0 for sqrt(C)
  std::optional<NormConfig> norm = {};                ///< of the sum
  Index token_types = 0;                              ///< rows of a table, of which all tokens get the first
};

/// The input of a stack of layers: scaled token embeddings plus positions.
/// Math:    x = dropout(scale embedding(ids) + position), or dropout(norm(the sum)); with token_types, the
///          first row of their table joins the sum
/// Shapes:  ids i32 [B, T] -> [B, T, C]
/// Initial: embeddings of standard deviation 1/scale, so that tokens and positions have equal weight and a
///          head tied to them starts with logits of order one
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.4
class TokenInput : public Module {
 public:
  TokenInput(const TokenInputConfig& config, Generator& random);

  /// `first` is the position of the first id.
  Tensor operator()(const Tensor& ids, Index first = 0) const;
  /// `at`, i32 [B, T], holds the position of every id.
  Tensor operator()(const Tensor& ids, const Tensor& at) const;
  void visit(ParameterVisitor& visitor) override;
  /// The table of token embeddings.
  Embedding& embedding() { return embedding_; }

 private:
  Tensor embedded(const Tensor& ids) const;
  Tensor finished(const Tensor& sum_btc) const { return dropout_(norm_ ? (*norm_)(sum_btc) : sum_btc); }

  double scale_;
  Embedding embedding_;
  Positions positions_;
  Dropout dropout_;
  std::optional<Norm> norm_;
  Parameter token_types_;  // undefined without
};

}  // namespace tapeformer
