#include <tapeformer/nn/transformer/config_text.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <algorithm>
#include <utility>

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

AttentionConfig DecoderOnlyConfig::attention_config(Index layer) const {
  AttentionConfig config = attention;
  if (!attention_pattern.empty()) {
    const auto letters = static_cast<Index>(attention_pattern.size());
    const bool is_full = attention_pattern[static_cast<std::size_t>(layer % letters)] == 'F';
    AttentionConfig other = attention;  // of the other letter, whose own fields this layer does without
    if (!is_full) other.kind = full_attention;
    config = other.of_kind(is_full ? full_attention : attention.kind);
  }
  const bool has_state = attention_kind(config.kind).can & kHasState;
  config.width = width;
  config.value_width = attention.key_width;
  config.rotary = positions == PositionKind::rotary && !has_state;
  if (has_state) config.dropout = 0;
  return config;
}

void DecoderOnlyConfig::check() const {
  const auto require = [](bool holds, const std::string& rule) {
    if (!holds) throw Error("[decoder_only] " + rule);
  };
  check_fields("decoder_only", *this);
  const auto can_model = [](const AttentionKind& kind) { return (kind.can & kCanModelLanguage) != 0; };
  require(attention_pattern.find_first_not_of("DF") == std::string::npos,
          "attention_pattern must be of the letters D and F; got " + attention_pattern);
  for (const auto& [name, kind] :
       {std::pair("attention", &attention.kind), std::pair("full_attention", &full_attention)}) {
    require(can_model(attention_kind(*kind)),
            std::string(name) + " must be one of " + kind_names(can_model) + "; got " + *kind);
  }
  check_embedded("decoder_only", *this, attention);
  const Index all = std::max<Index>(static_cast<Index>(attention_pattern.size()), 1);
  for (Index layer = 0; layer < std::min(layers, all); ++layer) {
    const AttentionConfig config = attention_config(layer);
    const AttentionKind& kind = attention_kind(config.kind);
    require(value_embeddings == ValueEmbeddings::none || kind.uses("value_mixing"),
            "value_embeddings are for attention=" +
                kind_names([](const AttentionKind& other) { return other.uses("value_mixing"); }) + "; got " +
                kind.name);
    require(!prefix || !(kind.can & kHasState),
            "a prefix that sees itself in both directions is for attention=" +
                kind_names([](const AttentionKind& other) {
                  return (other.can & kCanModelLanguage) && !(other.can & kHasState);
                }) +
                "; got " + kind.name);
    config.check();
  }
}

std::string DecoderOnlyConfig::to_json() const { return config_text("decoder_only", *this); }

DecoderOnlyConfig DecoderOnlyConfig::from_json(const std::string& text) {
  return config_from_text("decoder_only", text, DecoderOnlyConfig());
}

}  // namespace tapeformer
