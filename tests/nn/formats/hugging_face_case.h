#pragma once

#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/hugging_face_config.h>
#include <tapeformer/tests/reference/config_case.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace tapeformer {

inline Json gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_embd", 768}, {"n_layer", 12}, {"n_head", 12}};
}

inline Json llama() {
  return {{"model_type", "llama"},     {"vocab_size", 128256},    {"hidden_size", 2048},
          {"intermediate_size", 8192}, {"num_hidden_layers", 16}, {"num_attention_heads", 32},
          {"num_key_value_heads", 8}};
}

inline Json with(Json json, const char* name, const Json& value) {
  json[name] = value;
  return json;
}

inline std::string refusal(const Json& json) {
  return message_of<CheckpointError>([&] { hugging_face_config(json.dump()); });
}

/// The fields whose values differ between `config` and `usual`, but for those in `left_out`: sizes.
template <class Config>
std::string differences(const Config& config, const Config& usual,
                        const std::string& left_out = " vocabulary layers width feed_forward ") {
  const FieldList fields = fields_of(config), usual_fields = fields_of(usual);
  std::string text;
  for (const auto& [field, before] : changed_fields(fields, usual_fields))
    if (left_out.find(" " + field->name + " ") == std::string::npos)
      text += (text.empty() ? "" : " ") + field->name + "=" + field->text();
  return text;
}

inline constexpr const char* kNotImplemented = " changes the arithmetic and is not implemented";
inline constexpr const char* kUnknown =
    " is unknown here and may change the arithmetic; if it does not, remove it";

}  // namespace tapeformer
