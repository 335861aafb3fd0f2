#include <tapeformer/nn/transformer/config_text.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>

namespace tapeformer {

namespace {
constexpr ValueEmbeddings kValueEmbeddings[] = {ValueEmbeddings::none, ValueEmbeddings::ends,
                                                ValueEmbeddings::alternate, ValueEmbeddings::all};
}  // namespace

const char* name_of(ValueEmbeddings layers) {
  constexpr const char* kNames[] = {"none", "ends", "alternate", "all"};
  return kNames[static_cast<int>(layers)];
}

ValueEmbeddings value_embeddings(const std::string& name) {
  for (const ValueEmbeddings layers : kValueEmbeddings) {
    if (name == name_of(layers)) return layers;
  }
  throw Error("[decoder_only] value_embeddings must be none, ends, alternate or all; got " + name);
}

bool DecoderOnlyConfig::has_value_embedding(Index layer) const {
  switch (value_embeddings) {
    case ValueEmbeddings::ends: return layer == 0 || layer == layers - 1;
    case ValueEmbeddings::alternate: return (layers - 1 - layer) % 2 == 0;
    case ValueEmbeddings::all: return true;
    default: return false;
  }
}

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
  check_fields("decoder_only", *this);
  require(attention_kind(attention.kind).can & kCanModelLanguage,
          "attention must be one of " +
              kind_names([](const AttentionKind& kind) { return kind.can & kCanModelLanguage; }) + "; got " +
              attention.kind);
  require(value_embeddings == ValueEmbeddings::none || attention_kind(attention.kind).uses("value_mixing"),
          "value_embeddings are for attention=" +
              kind_names([](const AttentionKind& kind) { return kind.uses("value_mixing"); }) + "; got " +
              attention.kind);
  check_embedded("decoder_only", *this, attention);
  attention_config().check();
}

std::string DecoderOnlyConfig::to_json() const { return config_text("decoder_only", *this); }

DecoderOnlyConfig DecoderOnlyConfig::from_json(const std::string& text) {
  return config_from_text("decoder_only", text, DecoderOnlyConfig());
}

}  // namespace tapeformer
