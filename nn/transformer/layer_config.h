#pragma once

#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/feed_forward.h>

namespace tapeformer {

/// What encoder and decoder layers have in common.
struct TransformerLayerConfig {
  Index width = 256;       ///< C
  Index heads = 8;         ///< H
  Index key_width = 0;     ///< d_k; 0 for width / heads
  Index value_width = 0;   ///< d_v; 0 for width / heads
  Index feed_forward = 0;  ///< F; 0 for 4 * width
  Unary activation = Unary::relu;
  double dropout = 0;      ///< on attention weights, activations and what each sublayer adds
  bool norm_first = true;  ///< pre-norm: x + f(norm(x)); else post-norm: norm(x + f(x))
  double epsilon = 1e-5;

  MultiHeadConfig attention() const { return {width, heads, 0, key_width, value_width, dropout, true}; }
  FeedForwardConfig feed_forward_config() const { return {width, feed_forward, activation, dropout, true}; }
};

}  // namespace tapeformer
