#pragma once

#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/feed_forward.h>

namespace tapeformer {

/// What encoder and decoder layers have in common.
struct TransformerLayerConfig {
  AttentionKind attention = AttentionKind::multi_head;
  Index width = 256;       ///< C
  Index heads = 8;         ///< H
  Index groups = 0;        ///< G, key and value heads of grouped attention; 0 for heads / 2
  Index key_width = 0;     ///< d_k; 0 for width / heads
  Index value_width = 0;   ///< d_v; 0 for width / heads
  Index latent_width = 0;  ///< of latent attention's compressed keys and values; 0 for width / 2
  Index rotary_width = 0;  ///< of latent attention's rotary keys; 0 for its default
  bool rotary = false;     ///< self-attention turns queries and keys by their positions
  RotaryConfig rotations;  ///< how, where they are turned
  bool packed = true;      ///< multi-head self-attention projects to queries, keys and values by one matrix
  Index feed_forward = 0;  ///< F; 0 for 4 * width
  Unary activation = Unary::relu;
  double dropout = 0;      ///< on attention weights, activations and what each sublayer adds
  bool norm_first = true;  ///< pre-norm: x + f(norm(x)); else post-norm: norm(x + f(x))
  double epsilon = 1e-5;

  AttentionConfig attention_config(bool cross) const {
    AttentionConfig config;
    config.kind = attention;
    config.width = width;
    config.heads = heads;
    config.groups = groups;
    config.key_width = key_width;
    config.value_width = value_width;
    config.latent_width = latent_width;
    config.rotary_width = rotary_width;
    config.dropout = dropout;
    config.cross = cross;
    config.rotary = rotary && !cross;
    config.rotations = rotations;
    config.packed = packed;
    return config;
  }
  FeedForwardConfig feed_forward_config() const {
    return {width, feed_forward, activation, dropout, true, false};
  }
};

}  // namespace tapeformer
