#pragma once

#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/feed_forward.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/positions.h>

#include <string>

namespace tapeformer {

/// What a language model is made of. As it stands: GPT-2 without dropout.
struct DecoderOnlyConfig {
  Index vocabulary = 0;  ///< V
  Index context =
      256;            ///< most tokens a sequence has in training; learned and sinusoidal positions end there
  Index layers = 4;   ///< L
  Index width = 128;  ///< C

  AttentionConfig attention{"mha", 4};  ///< of the width above; values are as wide as keys

  NormKind norm = NormKind::layer;  ///< before each sublayer and before the head
  double epsilon = 1e-5;
  bool norm_bias = true;  ///< layer norm's

  PositionKind positions = PositionKind::learned;  ///< rotary ones turn queries and keys

  Index feed_forward = 0;  ///< F; 0 for 4 C, gated 8 C / 3 rounded up to a multiple of 32
  Unary activation = Unary::gelu_tanh;
  bool gated = false;  ///< with silu: swiglu
  bool feed_forward_bias = true;

  bool tie_head = true;  ///< the head's weight is the embedding
  bool head_bias = false;
  double embedding_dropout = 0, residual_dropout = 0;  ///< on what enters the layers, and what sublayers add
  bool prefix = false;  ///< trained with a prompt that sees itself in both directions

  /// F, with 0 replaced by what it stands for.
  Index hidden_width() const;
  /// `attention` with what the model decides.
  AttentionConfig attention_config() const;
  /// Throws: Error naming the fields that do not fit.
  void check() const;

  /// JSON, for config.json of a run folder. from_json throws CheckpointError naming what is wrong.
  std::string to_json() const;
  static DecoderOnlyConfig from_json(const std::string& json);
};

}  // namespace tapeformer
