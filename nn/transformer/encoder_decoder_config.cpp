#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/checkpoint.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>
#include <type_traits>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

/// f(name, field) for every field that configurations have always had.
template <class Config, class F>
void for_each_field(Config& c, const F& f) {
  f("source_vocabulary", c.source_vocabulary);
  f("target_vocabulary", c.target_vocabulary);
  f("encoder_layers", c.encoder_layers);
  f("decoder_layers", c.decoder_layers);
  f("width", c.layer.width);
  f("heads", c.layer.heads);
  f("key_width", c.layer.key_width);
  f("value_width", c.layer.value_width);
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
  f("attention", c.layer.attention);
  f("groups", c.layer.groups);
  f("latent_width", c.layer.latent_width);
  f("rotary_width", c.layer.rotary_width);
  f("packed", c.layer.packed);
  f("rotary", c.layer.rotary);
  f("rotary_base", c.layer.rotations.base);
  f("rotary_layout", c.layer.rotations.layout);
  f("rotary_components", c.layer.rotations.width);
  f("rotary_max_positions", c.layer.rotations.max_positions);
  f("rotary_factor", c.layer.rotations.factor);
  f("rotary_original_context", c.layer.rotations.original_context);
  f("rotary_low_frequency", c.layer.rotations.low_frequency);
  f("rotary_high_frequency", c.layer.rotations.high_frequency);
}

using tapeformer::name_of;
const char* name_of(RotaryLayout layout) {
  return layout == RotaryLayout::interleaved ? "interleaved" : "half_split";
}

void parse(const std::string& name, Unary& kind) { kind = activation_named(name); }
void parse(const std::string& name, PositionKind& kind) { kind = position_kind(name); }
void parse(const std::string& name, AttentionKind& kind) { kind = attention_kind(name); }
void parse(const std::string& name, RotaryLayout& layout) {
  for (const RotaryLayout known : {RotaryLayout::interleaved, RotaryLayout::half_split}) {
    if (name == name_of(known)) return void(layout = known);
  }
  throw Error("rotary_layout must be interleaved or half_split; got " + name);
}

template <class Field>
void write(Json& json, const char* name, const Field& field) {
  if constexpr (std::is_enum_v<Field>) {
    json[name] = name_of(field);
  } else {
    json[name] = field;
  }
}

template <class Field>
void read(const Json& json, const char* name, Field& field) {
  if constexpr (std::is_enum_v<Field>) {
    parse(json.at(name).get<std::string>(), field);
  } else {
    json.at(name).get_to(field);
  }
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
  try {
    const Json json = Json::parse(text);
    if (json.at("model") != "encoder_decoder")
      throw Error("model must be encoder_decoder; got " + json["model"].dump());
    EncoderDecoderConfig config;
    config.layer.packed = false;  // as models were before they said so
    for_each_field(config, [&](const char* name, auto& field) { read(json, name, field); });
    for_each_later_field(config, [&](const char* name, auto& field) {
      if (json.contains(name)) read(json, name, field);
    });
    config.check();
    return config;
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(std::string("the model's configuration is damaged: ") + error.what());
  } catch (const Error& error) {
    throw CheckpointError(std::string("the model's configuration is not usable: ") + error.what());
  }
}

EncoderDecoder EncoderDecoder::load(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::ifstream file(path);
  if (!file) throw CheckpointError(path + ": cannot be read; try the run folder of a finished training");
  std::stringstream text;
  text << file.rdbuf();
  try {
    Generator random(0);
    EncoderDecoder model(EncoderDecoderConfig::from_json(text.str()), random);
    load_weights(folder + "/weights.safetensors", model);
    model.eval();
    return model;
  } catch (const CheckpointError& error) {
    throw CheckpointError(folder + ": " + error.what());
  }
}

}  // namespace tapeformer
