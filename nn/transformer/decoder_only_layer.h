#pragma once

#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/short_convolution.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/residual.h>

namespace tapeformer {

/// The optional arguments of a call.
struct DecoderOnlyContext : AttentionContext {
  DecoderOnlyContext() = default;
  /// A context for attention alone.
  DecoderOnlyContext(const AttentionContext& context) : AttentionContext(context) {}

  /// Two caches, attention's and the feed-forward network's, for a layer with `cache` and short convolutions.
  ConvolutionCache* convolutions = nullptr;
};

/// Pre-norm self-attention and feed-forward network, each with a residual connection.
/// Math:    x = x + dropout(attention(norm(x))); y = x + dropout(feed_forward(norm(x)));
///          with sublayer_norms=both, x + dropout(output_norm(attention(norm(x)))), and so for the other;
///          with sublayer_norms=output, x + dropout(norm(attention(x))), and so for the other;
///          with sublayer_norms=mixed, as with output in layers F, and as with input in layers D;
///          with sublayer_norms=sum, norm(x + dropout(attention(x))), and so for the other;
///          without the first_norm, layer 0 has attention(x) in place of attention(norm(x));
///          with a residual_scale, everything that is added to x is multiplied by it;
///          with short convolutions, convolution(norm(x)) in place of norm(x);
///          with a window W, a query sees its own key and the W - 1 before it, or if bidirectional W / 2 on
///          either side, and rotary positions may have a base of their own
/// Shapes:  x [B, T, C] -> [B, T, C]
class DecoderOnlyLayer : public Module {
 public:
  /// Layer `number` of a model, from 0.
  DecoderOnlyLayer(const DecoderOnlyConfig& config, Generator& random, Index number = 0);

  Tensor operator()(const Tensor& x, const DecoderOnlyContext& context) const;
  /// The layer inside a stack: the last residual sum may be left to the next layer's norm, which fuses it.
  void operator()(ResidualStream& stream, const DecoderOnlyContext& context) const;
  /// The rotary angles of x's tokens, the same for every layer of a stack with the same kind and base.
  RotaryAngles angles(const Tensor& x, const AttentionContext& context) const {
    return attention_->angles(x, context);
  }
  /// Widths of the attention's cache.
  CacheWidths cache_widths() const { return attention_->cache_widths(); }
  void visit(ParameterVisitor& visitor) override;

 private:
  Norm attention_norm_;
  std::unique_ptr<Attention> attention_;
  Index window_;  // that its queries see; 0 for all
  NormPlace attention_place_, place_;
  double residual_scale_;
  Norm feed_forward_norm_;
  FeedForwardNetwork feed_forward_;
  Dropout dropout_;
  std::optional<Norm> attention_output_norm_, feed_forward_output_norm_;              // both or neither
  std::optional<ShortConvolution> attention_convolution_, feed_forward_convolution_;  // both or neither
};

}  // namespace tapeformer
