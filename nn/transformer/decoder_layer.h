#pragma once

#include <tapeformer/nn/layer_norm.h>
#include <tapeformer/nn/transformer/layer_config.h>

namespace tapeformer {

/// Causal self-attention, attention to the encoder's output, and a feed-forward network, each with residual
/// and norm.
/// Shapes:  x [B, T, C], memory [B, S, C], masks bool [B, T] and [B, S] or undefined -> [B, T, C]
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.1
class DecoderLayer : public Module {
 public:
  DecoderLayer(const TransformerLayerConfig& config, Generator& random);

  /// `key_mask` is of x itself, `memory_mask` of the memory; true = token.
  Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& memory_mask = {},
                    const Tensor& key_mask = {}) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  bool norm_first_;
  std::unique_ptr<Attention> self_attention_, cross_attention_;
  FeedForward feed_forward_;
  LayerNorm self_attention_norm_, cross_attention_norm_, feed_forward_norm_;
  Dropout dropout_;
};

}  // namespace tapeformer
