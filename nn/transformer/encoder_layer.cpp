#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/transformer/encoder_layer.h>

namespace tapeformer {

EncoderLayer::EncoderLayer(const TransformerLayerConfig& config, Generator& random)
    : norm_place_(config.norm_place()),
      self_attention_(make_attention(config.attention_config(false), random)),
      feed_forward_(config.feed_forward_config(), random),
      self_attention_norm_(config.norm_config()),
      feed_forward_norm_(config.norm_config()),
      dropout_({config.dropout}, random) {}

void EncoderLayer::operator()(ResidualStream& stream, const Tensor& key_mask,
                              const RotaryAngles& angles) const {
  AttentionContext masks;
  masks.key_mask = key_mask;
  masks.angles = angles;
  {
    const ProfilePart part("self_attention");
    residual(stream, norm_place_, self_attention_norm_, dropout_,
             [&](const Tensor& h) { return (*self_attention_)(h, h, masks); });
  }
  const ProfilePart part("feed_forward");
  residual(stream, norm_place_, feed_forward_norm_, dropout_, feed_forward_);
}

Tensor EncoderLayer::operator()(const Tensor& x, const Tensor& key_mask) const {
  ResidualStream stream(x);
  (*this)(stream, key_mask, {});
  return stream.sum();
}

void EncoderLayer::visit(ParameterVisitor& visitor) {
  visitor.child("self_attention", *self_attention_);
  visitor.child("self_attention_norm", self_attention_norm_);
  visitor.child("feed_forward", feed_forward_);
  visitor.child("feed_forward_norm", feed_forward_norm_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
