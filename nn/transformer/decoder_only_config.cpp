#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/transformer/config_fields.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <cmath>

namespace tapeformer {
namespace {

using namespace config_fields;

template <class Config, class F>
void for_each_field(Config& c, const F& f) {
  f("vocabulary", c.vocabulary);
  f("context", c.context);
  f("layers", c.layers);
  f("width", c.width);
  f("attention", c.attention.kind);
  f("heads", c.attention.heads);
  f("groups", c.attention.groups);
  f("head_width", c.attention.key_width);
  f("latent_width", c.attention.latent_width);
  f("query_latent_width", c.attention.query_latent_width);
  f("rotary_width", c.attention.rotary_width);
  f("attention_bias", c.attention.bias);
  f("attention_dropout", c.attention.dropout);
  f("norm", c.norm);
  f("epsilon", c.epsilon);
  f("norm_bias", c.norm_bias);
  f("positions", c.positions);
  for_each_rotary_field(c.attention.rotations, f);
  f("feed_forward", c.feed_forward);
  f("activation", c.activation);
  f("gated", c.gated);
  f("feed_forward_bias", c.feed_forward_bias);
  f("tie_head", c.tie_head);
  f("head_bias", c.head_bias);
  f("embedding_dropout", c.embedding_dropout);
  f("residual_dropout", c.residual_dropout);
  f("prefix", c.prefix);
}

}  // namespace

Index DecoderOnlyConfig::hidden_width() const {
  if (feed_forward > 0) return feed_forward;
  return gated ? (8 * width / 3 + 31) / 32 * 32 : 4 * width;
}

AttentionConfig DecoderOnlyConfig::attention_config() const {
  AttentionConfig config = attention;
  config.width = width;
  config.value_width = attention.key_width;
  config.rotary = positions == PositionKind::rotary;
  return config;
}

void DecoderOnlyConfig::check() const {
  const auto require = [](bool holds, const std::string& rule) {
    if (!holds) throw Error("[decoder_only] " + rule);
  };
  const auto sizes = [&] {
    return "vocabulary=" + std::to_string(vocabulary) + ", context=" + std::to_string(context) +
           ", layers=" + std::to_string(layers) + ", width=" + std::to_string(width) +
           ", heads=" + std::to_string(attention.heads);
  };
  require(vocabulary > 0 && context > 0 && layers > 0 && width > 0 && attention.heads > 0,
          "sizes must be positive; got " + sizes());
  require(attention_kind(attention.kind).can & kCanModelLanguage,
          "attention must be one of " +
              kind_names([](const AttentionKind& kind) { return kind.can & kCanModelLanguage; }) + "; got " +
              attention.kind);
  check_embedded(
      "decoder_only", attention,
      {"groups", "key_width", "latent_width", "query_latent_width", "rotary_width", "bias", "dropout"});
  attention_config().check();
  require(feed_forward >= 0, "feed_forward must not be negative; got " + std::to_string(feed_forward));
  require(epsilon > 0 && std::isfinite(epsilon), "epsilon must be positive; got " + std::to_string(epsilon));
  for (const auto& [name, dropout] :
       {std::pair("embedding_dropout", embedding_dropout), std::pair("residual_dropout", residual_dropout),
        std::pair("attention_dropout", attention.dropout)}) {
    require(dropout >= 0 && dropout < 1,
            std::string(name) + " must be in [0, 1); got " + std::to_string(dropout));
  }
}

std::string DecoderOnlyConfig::to_json() const {
  Json json;
  json["model"] = "decoder_only";
  for_each_field(*this, [&](const char* name, const auto& field) { write(json, name, field); });
  return json.dump(2) + "\n";
}

DecoderOnlyConfig DecoderOnlyConfig::from_json(const std::string& text) {
  return from_text(text, "decoder_only", [](const Json& json) {
    DecoderOnlyConfig config;
    for_each_field(config, [&](const char* name, auto& field) { read(json, name, field); });
    config.check();
    return config;
  });
}

}  // namespace tapeformer
