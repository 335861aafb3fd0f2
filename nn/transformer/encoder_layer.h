#pragma once

#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/transformer/layer_config.h>

namespace tapeformer {

/// Self-attention and a feed-forward network, each with residual and norm.
/// Shapes:  x [B, S, C], key_mask bool [B, S] (true = token, or undefined) -> [B, S, C]
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.1; pre-norm: Xiong et al. 2020, arXiv:2002.04745
class EncoderLayer : public Module {
 public:
  EncoderLayer(const TransformerLayerConfig& config, Generator& random);

  Tensor operator()(const Tensor& x, const Tensor& key_mask = {}) const;
  /// The layer inside a stack: the last residual sum may be left to the next layer's norm, which fuses it.
  void operator()(ResidualStream& stream, const Tensor& key_mask, const RotaryAngles& angles) const;
  /// The rotary angles of x's tokens, the same for every layer of a stack.
  RotaryAngles angles(const Tensor& x) const { return self_attention_->angles(x, {}); }
  void visit(ParameterVisitor& visitor) override;

 private:
  NormPlace norm_place_;
  std::unique_ptr<Attention> self_attention_;
  FeedForward feed_forward_;
  Norm self_attention_norm_, feed_forward_norm_;
  Dropout dropout_;
};

}  // namespace tapeformer
