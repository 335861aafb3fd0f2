#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/transformer/decoder_only_layer.h>

namespace tapeformer {

DecoderOnlyLayer::DecoderOnlyLayer(const DecoderOnlyConfig& config, Generator& random)
    : attention_norm_({config.norm, config.width, config.epsilon, config.norm_bias}),
      attention_(make_attention(config.attention_config(), random)),
      feed_forward_norm_({config.norm, config.width, config.epsilon, config.norm_bias}),
      feed_forward_(
          {config.width, config.hidden_width(), config.activation, 0, config.feed_forward_bias, config.gated},
          random),
      dropout_({config.residual_dropout}, random) {}

// residual() of residual.h adds dropout(sublayer(norm(x))) to the stream.
void DecoderOnlyLayer::operator()(ResidualStream& stream, const AttentionContext& context) const {
  residual(stream, NormPlace::pre, attention_norm_, dropout_,
           [&](const Tensor& normed_btc) { return (*attention_)(normed_btc, normed_btc, context); });
  residual(stream, NormPlace::pre, feed_forward_norm_, dropout_, feed_forward_);
}

Tensor DecoderOnlyLayer::operator()(const Tensor& x, const AttentionContext& context) const {
  ResidualStream stream(x);
  (*this)(stream, context);
  return stream.sum();
}

void DecoderOnlyLayer::visit(ParameterVisitor& visitor) {
  visitor.child("attention_norm", attention_norm_);
  visitor.child("attention", *attention_);
  visitor.child("feed_forward_norm", feed_forward_norm_);
  visitor.child("feed_forward", feed_forward_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
