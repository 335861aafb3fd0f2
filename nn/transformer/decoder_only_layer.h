#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/residual.h>

#include <memory>

namespace tapeformer {

/// Self-attention and a feed-forward network, each with residual and a norm before it.
/// Math:    x = x + dropout(attention(norm(x))); y = x + dropout(feed_forward(norm(x)))
/// Shapes:  x [B, T, C] -> [B, T, C]
class DecoderOnlyLayer : public Module {
 public:
  DecoderOnlyLayer(const DecoderOnlyConfig& config, Generator& random);

  Tensor operator()(const Tensor& x, const AttentionContext& context) const;
  /// The same for one of several layers: what it adds last may wait for the next one's norm.
  void operator()(ResidualStream& stream, const AttentionContext& context) const;
  /// Of x's tokens, for all layers of the stack.
  RotaryAngles angles(const Tensor& x, const AttentionContext& context) const {
    return attention_->angles(x, context);
  }
  CacheWidths cache_widths() const { return attention_->cache_widths(); }
  void visit(ParameterVisitor& visitor) override;

 private:
  Norm attention_norm_;
  std::unique_ptr<Attention> attention_;
  Norm feed_forward_norm_;
  FeedForward feed_forward_;
  Dropout dropout_;
};

}  // namespace tapeformer
