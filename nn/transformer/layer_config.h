#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/feed_forward.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/transformer/residual.h>

namespace tapeformer {

/// The configuration that encoder and decoder layers share.
struct TransformerLayerConfig {
  AttentionConfig attention{"mha", 8};  ///< its width and dropout are those below
  Index width = 256;                    ///< C
  Index feed_forward = 0;               ///< F; 0 for 4 * width
  Unary activation = Unary::relu;       ///< of the feed-forward networks
  double dropout = 0;                   ///< on attention weights, activations and what each sublayer adds
  NormKind norm = NormKind::layer;      ///< of every sublayer
  bool norm_first = true;               ///< pre-norm: x + f(norm(x)); else post-norm: norm(x + f(x))
  double epsilon = 1e-5;                ///< of the norms

  /// Configuration of the self-attention, or of the cross-attention.
  AttentionConfig attention_config(bool cross) const {
    AttentionConfig config = attention;
    config.width = width;
    config.dropout = dropout;
    config.cross = attention.cross || cross;
    return config;
  }
  /// Configuration of the norms.
  NormConfig norm_config() const { return {norm, width, epsilon, true}; }
  /// See norm_first.
  NormPlace norm_place() const { return norm_first ? NormPlace::pre : NormPlace::post; }
  /// Configuration of the feed-forward network.
  FeedForwardConfig feed_forward_config() const {
    return {width, feed_forward, activation, dropout, true, false};
  }

  void describe(const FieldVisitor& field);
};

}  // namespace tapeformer
