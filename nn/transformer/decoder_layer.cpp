#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/transformer/decoder_layer.h>

namespace tapeformer {

DecoderLayer::DecoderLayer(const TransformerLayerConfig& config, Generator& random)
    : norm_place_(config.norm_place()),
      self_attention_(make_attention(config.attention_config(false), random)),
      cross_attention_(make_attention(config.attention_config(true), random)),
      feed_forward_(config.feed_forward_config(), random),
      self_attention_norm_(config.norm_config()),
      cross_attention_norm_(config.norm_config()),
      feed_forward_norm_(config.norm_config()),
      dropout_({config.dropout}, random) {}

Tensor DecoderLayer::operator()(const Tensor& x, const Tensor& memory, const DecoderContext& context) const {
  ResidualStream stream(x);
  (*this)(stream, memory, context);
  return stream.sum();
}

void DecoderLayer::operator()(ResidualStream& stream, const Tensor& memory,
                              const DecoderContext& context) const {
  AttentionContext self, cross;
  self.causal = true;
  self.key_mask = context.key_mask;
  self.angles = context.angles;
  self.cache = context.self_cache;
  cross.key_mask = context.memory_mask;
  cross.cache = context.cross_cache;
  cross.weights = context.cross_weights;
  {
    const ProfilePart part("self_attention");
    residual(stream, norm_place_, self_attention_norm_, dropout_,
             [&](const Tensor& h) { return (*self_attention_)(h, h, self); });
  }
  {
    const ProfilePart part("cross_attention");
    residual(stream, norm_place_, cross_attention_norm_, dropout_,
             [&](const Tensor& h) { return (*cross_attention_)(h, memory, cross); });
  }
  const ProfilePart part("feed_forward");
  residual(stream, norm_place_, feed_forward_norm_, dropout_, feed_forward_);
}

RotaryAngles DecoderLayer::angles(const Tensor& x, const DecoderContext& context) const {
  AttentionContext self;
  self.cache = context.self_cache;
  return self_attention_->angles(x, self);
}

void DecoderLayer::visit(ParameterVisitor& visitor) {
  visitor.child("self_attention", *self_attention_);
  visitor.child("self_attention_norm", self_attention_norm_);
  visitor.child("cross_attention", *cross_attention_);
  visitor.child("cross_attention_norm", cross_attention_norm_);
  visitor.child("feed_forward", feed_forward_);
  visitor.child("feed_forward_norm", feed_forward_norm_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
