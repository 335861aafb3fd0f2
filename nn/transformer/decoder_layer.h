#pragma once

#include <tapeformer/nn/layer_norm.h>
#include <tapeformer/nn/transformer/layer_config.h>
#include <tapeformer/nn/transformer/residual.h>

namespace tapeformer {

/// What a decoder layer is told besides its inputs.
struct DecoderContext {
  Tensor memory_mask;               ///< bool [B, S], true = token; undefined: all are
  Tensor key_mask;                  ///< bool [B, T], the same of the layer's own input
  KvCache* self_cache = nullptr;    ///< holds the earlier tokens; the input's are added
  KvCache* cross_cache = nullptr;   ///< holds the memory from the first call on
  Tensor* cross_weights = nullptr;  ///< receives the weights [B, H, T, S] of the attention to the memory
  RotaryAngles angles = {};         ///< of self-attention, for all layers of a stack; see AttentionContext
};

/// Causal self-attention, attention to the encoder's output, and a feed-forward network, each with residual
/// and norm.
/// Shapes:  x [B, T, C], memory [B, S, C] -> [B, T, C]
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.1
class DecoderLayer : public Module {
 public:
  DecoderLayer(const TransformerLayerConfig& config, Generator& random);

  Tensor operator()(const Tensor& x, const Tensor& memory, const DecoderContext& context = {}) const;
  /// The same for one of several layers: what it adds last may wait for the next one's norm.
  void operator()(ResidualStream& stream, const Tensor& memory, const DecoderContext& context) const;
  void visit(ParameterVisitor& visitor) override;
  /// Of x's tokens, for all layers of the stack.
  RotaryAngles angles(const Tensor& x, const DecoderContext& context) const;
  CacheWidths self_cache_widths() const { return self_attention_->cache_widths(); }
  CacheWidths cross_cache_widths() const { return cross_attention_->cache_widths(); }

 private:
  bool norm_first_;
  std::unique_ptr<Attention> self_attention_, cross_attention_;
  FeedForward feed_forward_;
  LayerNorm self_attention_norm_, cross_attention_norm_, feed_forward_norm_;
  Dropout dropout_;
};

}  // namespace tapeformer
