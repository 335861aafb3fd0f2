#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/checkpoint.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string EncoderDecoderConfig::to_json() const {
  Json json;
  json["model"] = "encoder_decoder";
  json["source_vocabulary"] = source_vocabulary;
  json["target_vocabulary"] = target_vocabulary;
  json["encoder_layers"] = encoder_layers;
  json["decoder_layers"] = decoder_layers;
  json["width"] = layer.width;
  json["heads"] = layer.heads;
  json["key_width"] = layer.key_width;
  json["value_width"] = layer.value_width;
  json["feed_forward"] = layer.feed_forward;
  json["activation"] = name_of(layer.activation);
  json["dropout"] = layer.dropout;
  json["norm_first"] = layer.norm_first;
  json["epsilon"] = layer.epsilon;
  json["positions"] = name_of(positions);
  json["max_length"] = max_length;
  json["tie_target_head"] = tie_target_head;
  json["tie_embeddings"] = tie_embeddings;
  return json.dump(2) + "\n";
}

EncoderDecoderConfig EncoderDecoderConfig::from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("model") != "encoder_decoder")
      throw Error("model must be encoder_decoder; got " + json["model"].dump());
    EncoderDecoderConfig config;
    json.at("source_vocabulary").get_to(config.source_vocabulary);
    json.at("target_vocabulary").get_to(config.target_vocabulary);
    json.at("encoder_layers").get_to(config.encoder_layers);
    json.at("decoder_layers").get_to(config.decoder_layers);
    json.at("width").get_to(config.layer.width);
    json.at("heads").get_to(config.layer.heads);
    json.at("key_width").get_to(config.layer.key_width);
    json.at("value_width").get_to(config.layer.value_width);
    json.at("feed_forward").get_to(config.layer.feed_forward);
    config.layer.activation = activation_named(json.at("activation").get<std::string>());
    json.at("dropout").get_to(config.layer.dropout);
    json.at("norm_first").get_to(config.layer.norm_first);
    json.at("epsilon").get_to(config.layer.epsilon);
    config.positions = position_kind(json.at("positions").get<std::string>());
    json.at("max_length").get_to(config.max_length);
    json.at("tie_target_head").get_to(config.tie_target_head);
    json.at("tie_embeddings").get_to(config.tie_embeddings);
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
