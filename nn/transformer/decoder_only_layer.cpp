#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/transformer/decoder_only_layer.h>

namespace tapeformer {
namespace {

/// The input of a sublayer, the first or the second: x, or its convolution if the layer has one.
Tensor convolved(const std::optional<ShortConvolution>& convolution, const Tensor& x,
                 const DecoderOnlyContext& context, Index number) {
  if (!convolution) return x;
  if (context.cache == nullptr) return (*convolution)(x);
  if (context.convolutions == nullptr)
    throw Error(
        "[decoder_only_layer] a layer with short convolutions needs their caches next to its own; got none; "
        "try the caches of DecoderOnly::start()");
  return (*convolution)(x, context.convolutions[number]);
}

Tensor normed(const std::optional<Norm>& norm, const Tensor& x) { return norm ? (*norm)(x) : x; }

NormPlace place_of(SublayerNorms norms) {
  if (norms == SublayerNorms::sum) return NormPlace::post;
  return norms == SublayerNorms::output ? NormPlace::branch : NormPlace::pre;
}

bool lacks_norm(const DecoderOnlyConfig& config, Index layer) { return layer == 0 && !config.first_norm; }

/// The norm of attention, which has no parameters where it is not used.
NormConfig attention_norm(const DecoderOnlyConfig& config, Index layer) {
  NormConfig norm = config.norm_config();
  if (lacks_norm(config, layer)) norm.bias = norm.gain = false;
  return norm;
}

}  // namespace

DecoderOnlyLayer::DecoderOnlyLayer(const DecoderOnlyConfig& config, Generator& random, Index number)
    : attention_norm_(attention_norm(config, number)),
      attention_(make_attention(config.attention_config(number), random)),
      window_(config.has_window(number) ? config.window : 0),
      attention_place_(lacks_norm(config, number) ? NormPlace::none : place_of(config.norms_of(number))),
      place_(place_of(config.norms_of(number))),
      residual_scale_(config.residual_scale),
      feed_forward_norm_(config.norm_config()),
      feed_forward_(make_feed_forward(
          {config.width, config.hidden_width(), config.activation, config.feed_forward_dropout,
           config.feed_forward_bias, config.gated, config.swiglu},
          config.has_experts(number) ? config.experts : ExpertsConfig(), random)),
      dropout_({config.residual_dropout}, random) {
  if (config.sublayer_norms == SublayerNorms::both)
    attention_output_norm_.emplace(config.norm_config()),
        feed_forward_output_norm_.emplace(config.norm_config());
  if (config.short_convolution > 0) {
    const ShortConvolutionConfig convolution{config.width, config.short_convolution};
    attention_convolution_.emplace(convolution), feed_forward_convolution_.emplace(convolution);
  }
}

// residual() of residual.h adds dropout(sublayer(norm(x))) to the stream.
void DecoderOnlyLayer::operator()(ResidualStream& stream, const DecoderOnlyContext& context) const {
  AttentionContext attended = static_cast<const AttentionContext&>(context);
  if (window_ > 0) attended.window_before = context.causal ? window_ - 1 : window_ / 2;
  if (window_ > 0 && !context.causal) attended.window_after = window_ / 2;
  const auto attend = [&](const Tensor& normed_btc) {
    const Tensor x_btc = convolved(attention_convolution_, normed_btc, context, 0);
    return normed(attention_output_norm_, (*attention_)(x_btc, x_btc, attended));
  };
  const auto feed_forward = [&](const Tensor& normed_btc) {
    const Tensor x_btc = convolved(feed_forward_convolution_, normed_btc, context, 1);
    return normed(feed_forward_output_norm_, through(feed_forward_, x_btc, context.record));
  };
  residual("attention", stream, attention_place_, attention_norm_, dropout_, attend, residual_scale_);
  residual("feed_forward", stream, place_, feed_forward_norm_, dropout_, feed_forward, residual_scale_);
}

Tensor DecoderOnlyLayer::operator()(const Tensor& x, const DecoderOnlyContext& context) const {
  ResidualStream stream(x);
  (*this)(stream, context);
  return stream.sum();
}

void DecoderOnlyLayer::visit(ParameterVisitor& visitor) {
  visitor.child("attention_norm", attention_norm_);
  visitor.child("attention", *attention_);
  visitor.child("feed_forward_norm", feed_forward_norm_);
  std::visit([&](Module& network) { visitor.child("feed_forward", network); }, feed_forward_);
  if (attention_output_norm_) visitor.child("attention_output_norm", *attention_output_norm_);
  if (feed_forward_output_norm_) visitor.child("feed_forward_output_norm", *feed_forward_output_norm_);
  visitor.child("dropout", dropout_);
  if (attention_convolution_) visitor.child("attention_convolution", *attention_convolution_);
  if (feed_forward_convolution_) visitor.child("feed_forward_convolution", *feed_forward_convolution_);
}

}  // namespace tapeformer
