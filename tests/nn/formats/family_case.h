#pragma once

#include <tapeformer/nn/formats/family.h>
#include <tapeformer/tests/nn/formats/hugging_face_case.h>

namespace tapeformer {

/// A file of three layers with these fields too.
inline Json file_of(const char* type, const Json& more) {
  Json json = {{"model_type", type},       {"vocab_size", 29},       {"hidden_size", 24},
               {"intermediate_size", 40},  {"num_hidden_layers", 3}, {"num_attention_heads", 4},
               {"num_key_value_heads", 2}, {"rms_norm_eps", 0.25}};
  if (type == std::string("gpt2"))
    json = {{"model_type", type}, {"vocab_size", 29}, {"n_embd", 24}, {"n_layer", 3}, {"n_head", 4}};
  if (type == std::string("bloom"))
    json = {{"model_type", type}, {"vocab_size", 29}, {"hidden_size", 24}, {"n_layer", 3}, {"n_head", 4}};
  json.update(more);
  return json;
}

struct Reading {
  const char* type;
  Json more;
  const char* differences;  // from a Llama; of GPT-2, BLOOM and Llama from our defaults
};

/// A file is read as a model with these differences from `usual`, and written as a file of the same model.
inline void check_reading(const Reading& reading, const DecoderOnlyConfig& usual) {
  const std::string text = file_of(reading.type, reading.more).dump();
  INFO(text);
  const DecoderOnlyConfig config = hugging_face_config(text);
  CHECK(differences(config, usual) == reading.differences);
  const std::string written = hugging_face_json(config);
  const bool is_llama = config.window == 0 && reading.type == std::string("mistral");
  CHECK(parse_json(written).at("model_type") == (is_llama ? "llama" : reading.type));
  CHECK(hugging_face_config(written).to_json() == config.to_json());
}

}  // namespace tapeformer
