#include <tapeformer/nn/transformer/config_text.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/nn/transformer/load_model.h>

namespace tapeformer {

void EncoderDecoderConfig::check() const {
  const auto require = [](bool holds, const std::string& rule) {
    if (!holds) throw Error("[encoder_decoder] " + rule);
  };
  check_fields("encoder_decoder", *this);
  require(!(attention_kind(layer.attention.kind).can & kHasState),
          "attention must be one of " +
              kind_names([](const AttentionKind& kind) { return !(kind.can & kHasState); }) +
              ", which see in both directions; got " + layer.attention.kind);
  check_embedded("encoder_decoder", *this, layer.attention);
  AttentionConfig attention = layer.attention_config(false);
  attention.add_positions(positions);
  attention.check();
  require(max_length > 1, "max_length must be at least 2; got " + std::to_string(max_length));
  require(!tie_embeddings || source_vocabulary == target_vocabulary,
          "tied embeddings need one vocabulary; got source=" + std::to_string(source_vocabulary) +
              ", target=" + std::to_string(target_vocabulary) + "; try a shared vocabulary");
}

std::string EncoderDecoderConfig::to_json() const { return config_text("encoder_decoder", *this); }

EncoderDecoderConfig EncoderDecoderConfig::from_json(const std::string& text) {
  EncoderDecoderConfig config;
  config.layer.attention.packed = false;  // models had separate projections before their files said so
  return config_from_text("encoder_decoder", text, config);
}

EncoderDecoder EncoderDecoder::load(const std::string& folder) { return load_model<EncoderDecoder>(folder); }

}  // namespace tapeformer
