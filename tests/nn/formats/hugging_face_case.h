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

/// The fields of latent attention, and of DeepSeek's experts too.
inline Json latent(const Json& more) {
  Json json = {{"num_key_value_heads", 4},
               {"qk_nope_head_dim", 3},
               {"v_head_dim", 3},
               {"qk_rope_head_dim", 4},
               {"kv_lora_rank", 7}};
  json.update(more);
  return json;
}
inline Json deepseek(const Json& more) {
  Json json = latent({{"n_routed_experts", 8},
                      {"n_shared_experts", 2},
                      {"num_experts_per_tok", 2},
                      {"moe_intermediate_size", 9},
                      {"first_k_dense_replace", 2},
                      {"n_group", 4},
                      {"topk_group", 2},
                      {"q_lora_rank", nullptr}});
  json.update(more);
  return json;
}

inline Json with(Json json, const char* name, const Json& value) {
  json[name] = value;
  return json;
}

inline std::string refusal(const Json& json) {
  return message_of<CheckpointError>([&] { hugging_face_config(json.dump()); });
}

inline constexpr const char* kNotImplemented = " changes the arithmetic and is not implemented";
inline constexpr const char* kUnknown =
    " is unknown here and may change the arithmetic; if it does not, remove it";

}  // namespace tapeformer
