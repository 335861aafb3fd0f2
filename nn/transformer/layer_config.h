#pragma once

#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/feed_forward.h>

namespace tapeformer {

/// What encoder and decoder layers have in common.
struct TransformerLayerConfig {
  AttentionConfig attention{"mha", 8};  ///< its width and dropout are those below
  Index width = 256;                    ///< C
  Index feed_forward = 0;               ///< F; 0 for 4 * width
  Unary activation = Unary::relu;
  double dropout = 0;      ///< on attention weights, activations and what each sublayer adds
  bool norm_first = true;  ///< pre-norm: x + f(norm(x)); else post-norm: norm(x + f(x))
  double epsilon = 1e-5;

  AttentionConfig attention_config(bool cross) const {
    AttentionConfig config = attention;
    config.width = width;
    config.dropout = dropout;
    config.cross = cross;
    return config;
  }
  FeedForwardConfig feed_forward_config() const {
    return {width, feed_forward, activation, dropout, true, false};
  }
};

}  // namespace tapeformer
