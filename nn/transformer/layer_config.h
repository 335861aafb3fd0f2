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
  double stochastic_depth =
      0;  ///< the last layer's probability of dropping a sentence of what a sublayer adds
  NormKind norm = NormKind::layer;  ///< beside every sublayer
  bool norm_first = true;           ///< pre-norm: x + f(norm(x)); else post-norm: norm(x + f(x))
  double epsilon = 1e-5;

  /// Of its self-attention, or of its cross-attention.
  AttentionConfig attention_config(bool cross) const {
    AttentionConfig config = attention;
    config.width = width;
    config.dropout = dropout;
    config.cross = cross;
    return config;
  }
  /// Of its norms.
  NormConfig norm_config() const { return {norm, width, epsilon, true}; }
  /// See norm_first.
  NormPlace norm_place() const { return norm_first ? NormPlace::pre : NormPlace::post; }
  /// Of its feed-forward network.
  FeedForwardConfig feed_forward_config() const {
    return {width, feed_forward, activation, dropout, true, false};
  }

  template <class Self, class F>
  static void for_each(Self& c, const F& field) {
    field("width", c.width, "C, width of the states; a multiple of the heads", kPositiveSize);
    AttentionConfig::for_each_in_models(c.attention, field, 0, kHasState);
    field("key_width", c.attention.key_width, kSize);
    field("value_width", c.attention.value_width, kSize);
    field("packed", c.attention.packed);
    field("rotary", c.attention.rotary);
    field("feed_forward", c.feed_forward, "F, hidden width of the feed-forward networks; 0 for 4 C", kSize);
    field("activation", named(c.activation, name_of, activation_named),
          "relu, relu_squared, gelu, gelu_tanh or silu");
    field("dropout", c.dropout, "share of activations dropped in training", kBelowOne);
    field("stochastic_depth", c.stochastic_depth,
          "share of rows that the last layer leaves as they are, and earlier ones in proportion", kBelowOne);
    field("norm", named(c.norm, name_of, norm_kind), "layer, rms or scale, beside every sublayer");
    field("norm_first", c.norm_first);
    field("epsilon", c.epsilon, "of the norms", kPositive);
  }
};

}  // namespace tapeformer
