#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/hugging_face_json.h>

#include <algorithm>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

/// Of an activation that transformers has: an Expression tells.
const char* name_in_transformers(Unary activation) {
  return std::find_if(kHuggingFaceActivations.begin(), kHuggingFaceActivations.end(),
                      [&](const auto& row) { return row.second == activation; })
      ->first;
}

Json gpt2_json(const DecoderOnlyConfig& config) {
  Json json;
  json["architectures"] = {"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["vocab_size"] = config.vocabulary;
  json["n_positions"] = config.context;
  json["n_embd"] = config.width;
  json["n_layer"] = config.layers;
  json["n_head"] = config.attention.heads;
  json["n_inner"] = config.hidden_width();
  json["activation_function"] = name_in_transformers(config.activation);
  json["layer_norm_epsilon"] = config.epsilon;
  json["embd_pdrop"] = config.embedding_dropout;
  json["resid_pdrop"] = config.residual_dropout;
  json["attn_pdrop"] = config.attention.dropout;
  return json;
}

void write_windows(Json& json, const DecoderOnlyConfig& config, const HuggingFaceFamily& family) {
  if (!family.window) return;
  const Json window = config.window > 0 ? Json(config.window) : Json();
  json["sliding_window"] = window;
  if (!family.windows) return;
  if (family.gemma == 0) json["use_sliding_window"] = config.window > 0;
  Json types = Json::array();
  Index first = config.layers, first_full = config.layers;  // for versions without layer_types
  for (Index i = config.layers - 1; i >= 0; --i) (config.has_window(i) ? first : first_full) = i;
  for (Index i = 0; i < config.layers; ++i)
    types.push_back(config.has_window(i) ? "sliding_attention" : "full_attention");
  if (family.gemma == 0) json["max_window_layers"] = first;
  if (family.gemma == 3) json["sliding_window_pattern"] = first_full + 1;
  json["layer_types"] = types;
}

Json llama_json(const DecoderOnlyConfig& config, const HuggingFaceFamily& family) {
  const AttentionConfig attention = config.attention_config().resolved();
  const RotaryConfig& rotations = config.attention.rotations;
  Json json;
  json["architectures"] = {family.architecture};
  json["model_type"] = family.type;
  json["vocab_size"] = config.vocabulary;
  json["max_position_embeddings"] = config.context;
  json["hidden_size"] = config.width;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.attention.heads;
  json["num_key_value_heads"] = attention.key_heads();
  json["head_dim"] = attention.key_width;
  json["intermediate_size"] = config.hidden_width();
  const char* const activation = name_in_transformers(config.activation);
  if (family.gemma > 0) {
    const auto cap = [](double c) { return c > 0 ? Json(c) : Json(); };
    json["hidden_activation"] = activation == std::string("gelu_new") ? "gelu_pytorch_tanh" : activation;
    json["query_pre_attn_scalar"] = query_scalar(attention.score_scale);
    json["attn_logit_softcapping"] = cap(attention.softcap);
    json["final_logit_softcapping"] = cap(config.logit_softcap);
  } else {
    json["hidden_act"] = activation;
  }
  json["rms_norm_eps"] = config.epsilon;
  if (family.attention_bias) json["attention_bias"] = config.attention.bias;
  json["attention_dropout"] = config.attention.dropout;
  if (family.mlp_bias) json["mlp_bias"] = config.feed_forward_bias;
  write_windows(json, config, family);
  json["rope_theta"] = rotations.base;  // not in rope_parameters, so that old versions find it too
  if (family.gemma == 3)
    json["rope_local_base_freq"] = config.window_rotary_base > 0 ? config.window_rotary_base : rotations.base;
  if (rotations.yarn) {
    json["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", rotations.factor},
                            {"beta_slow", rotations.low_frequency},
                            {"beta_fast", rotations.high_frequency},
                            {"attention_factor", rotations.attention_factor},
                            {"original_max_position_embeddings", rotations.original_context}};
  } else if (rotations.original_context > 0) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", rotations.factor},
                            {"low_freq_factor", rotations.low_frequency},
                            {"high_freq_factor", rotations.high_frequency},
                            {"original_max_position_embeddings", rotations.original_context}};
  } else if (rotations.factor != 1) {
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rotations.factor}};
  }
  return json;
}

}  // namespace

std::string hugging_face_json(const DecoderOnlyConfig& config, DType type, const ControlTokens& tokens) {
  const Expression expression = expression_in_transformers(config);
  expression.check();
  Json json = config.norm == NormKind::layer ? gpt2_json(config) : llama_json(config, *expression.family);
  json["tie_word_embeddings"] = config.tie_head;
  const auto checked = [&](const char* name, std::int32_t id) {
    if (id >= 0 && id < config.vocabulary) return id;
    throw CheckpointError(std::string(name) + " must be within the vocabulary of " +
                          std::to_string(config.vocabulary) + "; got " + std::to_string(id));
  };
  // null if there is none, because the defaults of transformers may be outside the vocabulary.
  json["bos_token_id"] = tokens.begin ? Json(checked("bos_token_id", *tokens.begin)) : Json();
  json["eos_token_id"] = Json();
  for (const std::int32_t id : tokens.ends) json["eos_token_id"].push_back(checked("eos_token_id", id));
  if (tokens.ends.size() == 1) json["eos_token_id"] = tokens.ends[0];
  for (const char* const name : {"dtype", "torch_dtype"}) {  // the newer name and the older one
    json[name] = type == DType::f64 ? "float64" : "float32";
  }
  return json.dump(2) + "\n";
}

}  // namespace tapeformer
