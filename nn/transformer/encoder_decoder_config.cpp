#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/nn/transformer/load_model.h>

namespace tapeformer {

void EncoderDecoderConfig::check() const {
  const auto require = [](bool holds, const std::string& rule) {
    if (!holds) throw Error("[encoder_decoder] " + rule);
  };
  check_fields("encoder_decoder", fields_of(*this));
  const auto only_causal = [](const AttentionKind& kind) { return (kind.can & kOnlyCausal) != 0; };
  require(!only_causal(attention_kind(layer.attention.kind)),
          format("attention must be one of {}, which see in both directions; got {}",
                 kind_names([&](const AttentionKind& kind) { return !only_causal(kind); }),
                 layer.attention.kind));
  check_embedded("encoder_decoder", fields_of(*this), layer.attention);
  for (const TransformerLayerConfig& side : {layer, decoder_layer()}) {
    AttentionConfig attention = side.attention_config(false);
    attention.add_positions(positions);
    attention.check();
  }
  layer.experts.check();
  require(max_length > 1, format("max_length must be at least 2; got {}", max_length));
  require(!tie_embeddings || source_vocabulary == target_vocabulary,
          format("tied embeddings need one vocabulary; got source={}, target={}; try a shared vocabulary",
                 source_vocabulary, target_vocabulary));
}

TransformerLayerConfig EncoderDecoderConfig::decoder_layer() const {
  TransformerLayerConfig config = layer;
  if (decoder_heads > 0) config.attention.heads = decoder_heads;
  if (decoder_feed_forward > 0) config.feed_forward = decoder_feed_forward;
  return config;
}

void TransformerLayerConfig::describe(const FieldVisitor& field) {
  field("width", width, "C, width of the states; a multiple of the heads", kPositiveSize);
  attention.describe_in_models(field, 0, kOnlyCausal);
  field("key_width", attention.key_width, kSize);
  field("value_width", attention.value_width, kSize);
  field("packed", attention.packed);
  field("rotary", attention.rotary);
  field("feed_forward", feed_forward, "F, hidden width of the feed-forward networks; 0 for 4 C", kSize);
  field("activation", named(activation), "relu, relu_squared, gelu, gelu_tanh or silu");
  field("gated", gated);
  field("attention_bias", attention.bias);
  field("feed_forward_bias", feed_forward_bias,
        "biases in the feed-forward networks, with experts in their router too");
  experts.describe(field);
  field("dropout", dropout, "share of activations dropped in training", kBelowOne);
  const auto rate = [&](const char* name, std::optional<double>& member) {
    field(name,
          Property([&member] { return member; }, [&member](std::optional<double> set) { member = set; }),
          kBelowOne);
  };
  rate("attention_dropout", attention_dropout);
  rate("feed_forward_dropout", feed_forward_dropout);
  field("norm", named(norm), "layer or rms, at every sublayer");
  field("norm_first", norm_first);
  field("epsilon", epsilon, "epsilon of the norms", kPositive);
}

void EncoderDecoderConfig::describe(const FieldVisitor& field) {
  field("source_vocabulary", source_vocabulary, kPositiveSize);
  field("target_vocabulary", target_vocabulary, kPositiveSize);
  field("encoder_layers", encoder_layers, "layers of the encoder", kPositiveSize);
  field("decoder_layers", decoder_layers, "layers of the decoder", kPositiveSize);
  layer.describe(field);
  field("decoder_heads", decoder_heads, kSize);
  field("decoder_feed_forward", decoder_feed_forward, kSize);
  field.in_part(AttentionConfig::kPositionsPart)(
      "positions", named(positions),
      "sinusoidal, sinusoidal_halves (sines before cosines), sinusoidal_fairseq (as in M2M100) or "
      "learned, added to the embeddings, rotary, by which attention rotates queries and keys, alibi or "
      "buckets (of distances, as in T5), added to the scores, or none");
  field("max_length", max_length, "longest sentence in tokens; longer pairs are left out", kPositiveSize);
  field("tie_target_head", tie_target_head);
  field("tie_embeddings", tie_embeddings);
  field("embedding_scale", embedding_scale, kNotNegative);
  field("embedding_norm", embedding_norm);
  field("shared_buckets", shared_buckets);
  field("head_bias", head_bias);
  field("head_scale", head_scale, kPositive);
  field("logit_softcap", logit_softcap, "c: logits become c tanh(logits / c); 0 for none", kNotNegative);
  field("zero_init", zero_init, "initial zeros in the projections that write into the residual sum");
  adapter.describe(field);
}

std::string EncoderDecoderConfig::to_json() const { return config_text("encoder_decoder", fields_of(*this)); }

EncoderDecoderConfig EncoderDecoderConfig::from_json(const std::string& text) {
  EncoderDecoderConfig config;
  config.layer.attention.packed = false;  // models had separate projections before their files said so
  read_config_text("encoder_decoder", text, fields_of(config), [&] { config.check(); });
  return config;
}

EncoderDecoder EncoderDecoder::load(const std::string& folder) { return load_model<EncoderDecoder>(folder); }

}  // namespace tapeformer
