#include <tapeformer/nn/transformer/config_fields.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/nn/transformer/load_model.h>

namespace tapeformer {
namespace {

using namespace config_fields;

/// f(name, field) for every field that configurations have always had.
template <class Config, class F>
void for_each_field(Config& c, const F& f) {
  f("source_vocabulary", c.source_vocabulary);
  f("target_vocabulary", c.target_vocabulary);
  f("encoder_layers", c.encoder_layers);
  f("decoder_layers", c.decoder_layers);
  f("width", c.layer.width);
  f("heads", c.layer.attention.heads);
  f("key_width", c.layer.attention.key_width);
  f("value_width", c.layer.attention.value_width);
  f("feed_forward", c.layer.feed_forward);
  f("activation", c.layer.activation);
  f("dropout", c.layer.dropout);
  f("norm_first", c.layer.norm_first);
  f("epsilon", c.layer.epsilon);
  f("positions", c.positions);
  f("max_length", c.max_length);
  f("tie_target_head", c.tie_target_head);
  f("tie_embeddings", c.tie_embeddings);
}

/// And for those that files written before there were other kinds of attention leave out.
template <class Config, class F>
void for_each_later_field(Config& c, const F& f) {
  f("attention", c.layer.attention.kind);
  f("groups", c.layer.attention.groups);
  f("latent_width", c.layer.attention.latent_width);
  f("rotary_width", c.layer.attention.rotary_width);
  f("packed", c.layer.attention.packed);
  f("rotary", c.layer.attention.rotary);
  for_each_rotary_field(c.layer.attention.rotations, f);
}

}  // namespace

std::string EncoderDecoderConfig::to_json() const {
  Json json;
  json["model"] = "encoder_decoder";
  const auto add = [&](const char* name, const auto& field) { write(json, name, field); };
  for_each_field(*this, add);
  for_each_later_field(*this, add);
  return json.dump(2) + "\n";
}

EncoderDecoderConfig EncoderDecoderConfig::from_json(const std::string& text) {
  return from_text(text, "encoder_decoder", [](const Json& json) {
    EncoderDecoderConfig config;
    config.layer.attention.packed = false;  // as models were before they said so
    for_each_field(config, [&](const char* name, auto& field) { read(json, name, field); });
    for_each_later_field(config, [&](const char* name, auto& field) {
      if (json.contains(name)) read(json, name, field);
    });
    config.check();
    return config;
  });
}

EncoderDecoder EncoderDecoder::load(const std::string& folder) { return load_model<EncoderDecoder>(folder); }

}  // namespace tapeformer
