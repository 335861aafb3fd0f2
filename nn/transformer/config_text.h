#pragma once

#include <tapeformer/autograd/text/config_json.h>
#include <tapeformer/autograd/text/json.h>

#include <string>

// A model's configuration in the config.json of a run folder; for sources only.
namespace tapeformer {

template <class Config>
std::string config_text(const char* model, const Config& config) {
  nlohmann::ordered_json json;
  json["model"] = model;
  write_fields(json, config);
  return json.dump(2) + "\n";
}

/// `config` supplies the fields that the file lacks. Programs may keep more than the fields in the file.
/// Throws: CheckpointError naming what is wrong
template <class Config>
Config config_from_text(const char* model, const std::string& text, Config config) {
  const auto json = parse_json(text, "the model's configuration is damaged: it");
  try {
    if (json.at("model") != model)
      throw Error(std::string("model must be ") + model + "; got " + json["model"].dump());
    read_fields(json, config,
                {"model", "training", "vocabularies", "tokenizer_fingerprint", "data_fingerprint"});
    config.check();
    return config;
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(std::string("the model's configuration is damaged: ") + reason_of(error));
  } catch (const Error& error) {
    throw CheckpointError(std::string("the model's configuration is not usable: ") + error.what());
  }
}

}  // namespace tapeformer
