#pragma once

#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/transformer/layer_config.h>

namespace tapeformer {

/// Options of one call of a decoder layer.
struct DecoderContext {
  Tensor memory_mask;               ///< bool [B, S], true = token; undefined: all are
  Tensor key_mask;                  ///< bool [B, T], the same for the layer's own input
  KvCache* self_cache = nullptr;    ///< keys and values of earlier tokens; the input's are appended
  KvCache* cross_cache = nullptr;   ///< keys and values of the memory, filled by the first call
  Tensor* cross_weights = nullptr;  ///< receives the weights [B, H, T, S] of the attention to the memory
  RotaryAngles angles = {};         ///< for self-attention, shared by a stack of layers; see AttentionContext
};

/// Causal self-attention, attention to the encoder's output, and a feed-forward network, each with residual
/// and norm.
/// Shapes:  x [B, T, C], memory [B, S, C] -> [B, T, C]
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.1
class DecoderLayer : public Module {
 public:
  DecoderLayer(const TransformerLayerConfig& config, Generator& random);

  Tensor operator()(const Tensor& x, const Tensor& memory, const DecoderContext& context = {}) const;
  /// The layer inside a stack: the last residual sum may be left to the next layer's norm, which fuses it.
  void operator()(ResidualStream& stream, const Tensor& memory, const DecoderContext& context) const;
  void visit(ParameterVisitor& visitor) override;
  /// The rotary angles of x's tokens, the same for every layer of a stack.
  RotaryAngles angles(const Tensor& x, const DecoderContext& context) const;
  /// Widths of the self-attention's cache.
  CacheWidths self_cache_widths() const { return self_attention_->cache_widths(); }
  /// Widths of the cross-attention's cache.
  CacheWidths cross_cache_widths() const { return cross_attention_->cache_widths(); }

 private:
  NormPlace norm_place_;
  std::unique_ptr<Attention> self_attention_, cross_attention_;
  FeedForward feed_forward_;
  Norm self_attention_norm_, cross_attention_norm_, feed_forward_norm_;
  Dropout dropout_;
};

}  // namespace tapeformer
