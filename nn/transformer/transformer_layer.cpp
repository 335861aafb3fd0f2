#include <tapeformer/nn/transformer/transformer_layer.h>

namespace tapeformer {

AttentionConfig TransformerLayerConfig::attention_config(bool cross) const {
  AttentionConfig config = attention;
  config.width = width;
  config.dropout = attention_dropout.value_or(dropout);
  config.cross = attention.cross || cross;
  return config;
}

TransformerLayer::TransformerLayer(const TransformerLayerConfig& config, Generator& random,
                                   TransformerSide side)
    : norm_place_(config.norm_first ? NormPlace::pre : NormPlace::post),
      self_attention_(make_attention(config.attention_config(false), random)),
      cross_attention_(
          side == TransformerSide::encoder ? nullptr : make_attention(config.attention_config(true), random)),
      feed_forward_(make_feed_forward(
          {config.width, config.feed_forward, config.activation,
           config.feed_forward_dropout.value_or(config.dropout), config.feed_forward_bias, config.gated},
          config.experts, random)),
      self_attention_norm_(config.norm_config()),
      cross_attention_norm_(config.norm_config()),
      feed_forward_norm_(config.norm_config()),
      dropout_({config.dropout}, random) {}

Tensor TransformerLayer::operator()(const Tensor& x, const Tensor& memory,
                                    const TransformerLayerContext& context) const {
  ResidualStream stream(x);
  (*this)(stream, memory, context);
  return stream.sum();
}

void TransformerLayer::operator()(ResidualStream& stream, const Tensor& memory,
                                  const TransformerLayerContext& context) const {
  AttentionContext self, cross;
  self.causal = cross_attention_ != nullptr;
  self.key_mask = context.key_mask;
  self.angles = context.angles;
  self.cache = context.self_cache;
  self.record = context.record;
  cross.key_mask = context.memory_mask;
  cross.cache = context.cross_cache;
  cross.weights = context.cross_weights;
  residual("self_attention", stream, norm_place_, self_attention_norm_, dropout_,
           [&](const Tensor& h) { return (*self_attention_)(h, h, self); });
  if (cross_attention_)
    residual("cross_attention", stream, norm_place_, cross_attention_norm_, dropout_,
             [&](const Tensor& h) { return (*cross_attention_)(h, memory, cross); });
  residual("feed_forward", stream, norm_place_, feed_forward_norm_, dropout_,
           [&](const Tensor& h) { return through(feed_forward_, h, context.record); });
}

RotaryAngles TransformerLayer::angles(const Tensor& x, const TransformerLayerContext& context) const {
  AttentionContext self;
  self.cache = context.self_cache;
  return self_attention_->angles(x, self);
}

void TransformerLayer::visit(ParameterVisitor& visitor) {
  visitor.child("self_attention", *self_attention_);
  visitor.child("self_attention_norm", self_attention_norm_);
  if (cross_attention_) {
    visitor.child("cross_attention", *cross_attention_);
    visitor.child("cross_attention_norm", cross_attention_norm_);
  }
  std::visit([&](Module& network) { visitor.child("feed_forward", network); }, feed_forward_);
  visitor.child("feed_forward_norm", feed_forward_norm_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
