#pragma once

#include <tapeformer/nn/formats/family.h>
#include <tapeformer/tests/nn/formats/hugging_face_case.h>

#include <map>
#include <set>

namespace tapeformer {

/// A file of three layers with these fields too: JSON without its braces.
inline Json file_of(const std::string& type, const std::string& more = "") {
  const auto fields = [](const std::string& text) { return parse_json("{" + text + "}"); };
  const std::string sizes = R"("hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
                               "num_attention_heads": 4)";
  const std::map<std::string, std::string> usual = {
      {"gpt2", R"("n_embd": 24, "n_layer": 3, "n_head": 4)"},
      {"bloom", R"("hidden_size": 24, "n_layer": 3, "n_head": 4)"},
      {"bert", sizes},
      {"modernbert", sizes},
  };
  const std::string latent = R"("num_key_value_heads": 4, "qk_nope_head_dim": 3, "v_head_dim": 3,
                                "qk_rope_head_dim": 4, "kv_lora_rank": 7)";
  const std::string deepseek = latent + R"(, "n_routed_experts": 8, "n_shared_experts": 2,
                                           "num_experts_per_tok": 2, "moe_intermediate_size": 9,
                                           "first_k_dense_replace": 2, "n_group": 4, "topk_group": 2,
                                           "q_lora_rank": null)";
  const std::map<std::string, std::string> own = {
      {"minicpm3", latent},
      {"deepseek_v2", deepseek},
      {"deepseek_v3", deepseek},
      {"deepseek_v32", deepseek},
      {"glm_moe_dsa", deepseek},
      {"kimi_linear", latent + R"(, "num_experts": 8, "num_experts_per_token": 2, "num_shared_experts": 2,
                                  "moe_intermediate_size": 9)"},
      {"gpt_oss", R"("num_local_experts": 6, "num_experts_per_tok": 2,
                     "rope_parameters": {"rope_type": "default"})"},
      {"olmo_hybrid", R"("linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 5,
                         "linear_value_head_dim": 7)"},
  };
  Json json = {{"model_type", type}, {"vocab_size", 29}};
  const auto found = usual.find(type);
  json.update(fields(found != usual.end() ? found->second
                                          : sizes + R"(, "num_key_value_heads": 2, "rms_norm_eps": 0.25)"));
  if (const auto of_type = own.find(type); of_type != own.end()) json.update(fields(of_type->second));
  json.update(fields(more));
  return json;
}

struct Reading {
  std::string type, more, differences;  // from a Llama; of encoders, GPT-2, BLOOM and Llama from our defaults
};

/// Files are read as models with these differences, and written as files of the same models.
inline void check_readings(const std::vector<Reading>& readings) {
  for (const auto& [type, more, expected] : readings) {
    const std::string text = file_of(type, more).dump();
    INFO(text);
    const bool is_first = std::set<std::string>{"gpt2", "bloom", "bert", "modernbert"}.count(type) > 0 ||
                          text == file_of("llama").dump();
    const DecoderOnlyConfig config = hugging_face_config(text);
    CHECK(differences(config, is_first ? DecoderOnlyConfig()
                                       : hugging_face_config(file_of("llama").dump())) == expected);
    const std::string written = hugging_face_json(config);
    CHECK(parse_json(written).at("model_type") == (config.window == 0 && type == "mistral" ? "llama" : type));
    CHECK(hugging_face_config(written).to_json() == config.to_json());
  }
}

struct Refusal {
  const char *type, *more, *message;
};

/// Files are refused by messages that end with `end`.
inline void check_refusals(const std::vector<Refusal>& refusals, const std::string& end = "") {
  for (const auto& [type, more, message] : refusals) CHECK(refusal(file_of(type, more)) == message + end);
}

}  // namespace tapeformer
