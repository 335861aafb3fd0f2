#pragma once

#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/residual.h>

#include <memory>

namespace tapeformer {

/// Pre-norm self-attention and feed-forward network, each with a residual connection.
/// Math:    x = x + dropout(attention(norm(x))); y = x + dropout(feed_forward(norm(x)))
/// Shapes:  x [B, T, C] -> [B, T, C]
class DecoderOnlyLayer : public Module {
 public:
  DecoderOnlyLayer(const DecoderOnlyConfig& config, Generator& random);

  Tensor operator()(const Tensor& x, const AttentionContext& context) const;
  /// The same inside a stack: the last residual sum may be left to the next layer's norm, which fuses it.
  void operator()(ResidualStream& stream, const AttentionContext& context) const;
  /// The rotary angles of x's tokens, the same for every layer of a stack.
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
