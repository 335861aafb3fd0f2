#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/text/json.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/formats/hugging_face_json.h>

#include <cmath>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

const char* name_in_transformers(Unary activation) {
  for (const auto& [theirs, ours] : kHuggingFaceActivations) {
    if (ours == activation) return theirs;
  }
  throw CheckpointError(std::string("transformers has no activation ") + name_of(activation));
}

/// The whole number n, as transformers wants it, of which score_scale is 1 / sqrt(n); 0 if there is none.
Index query_scalar(double score_scale) {
  const double n = std::round(1 / (score_scale * score_scale));
  return n < 1e9 && 1 / std::sqrt(n) == score_scale ? static_cast<Index>(n) : 0;
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

void check_expressible(const DecoderOnlyConfig& config, const std::string& program,
                       const HuggingFaceFamily& family) {
  if (config.norm == NormKind::scale) throw CheckpointError(program + " has no norm=scale");
  const AttentionConfig attention = config.attention_config().resolved();
  const bool is_gpt2 = config.norm == NormKind::layer,
             can_export = attention_kind(attention.kind).can & kCanExport;
  std::string problems;
  const auto require = [&](bool holds, const std::string& field) {
    if (!holds) problems += (problems.empty() ? "" : ", ") + field;
  };
  const auto number = [](Index n) { return std::to_string(n); };
  require(!config.prefix, "prefix=true");
  require(!config.head_bias, "head_bias=true");
  require(config.width % config.attention.heads == 0,
          "heads=" + number(config.attention.heads) + " for a width of " + number(config.width));
  require(config.attention_pattern.empty(), "attention_pattern=" + config.attention_pattern);
  require(can_export && (!is_gpt2 || attention.groups == 0), "attention=" + attention.kind);
  require(!is_gpt2 || attention.key_width * config.attention.heads == config.width,
          "head_width=" + number(attention.key_width));
  require(config.positions == (is_gpt2 ? PositionKind::learned : PositionKind::rotary),
          std::string("positions=") + name_of(config.positions));
  const Index rotated = config.attention.rotations.width;
  require(is_gpt2 || rotated == 0 || rotated == attention.key_width, "rotary_components=" + number(rotated));
  const RotaryConfig& rotations = config.attention.rotations;
  require(rotations.yarn || rotations.attention_factor == 1,
          "rotary_attention_factor=" + value_text(rotations.attention_factor));
  const bool is_normed = config.attention.qk_norm != QkNorm::none;
  require(config.attention.qk_norm == family.qk_norm,
          std::string("qk_norm=") + qk_norm_name(config.attention.qk_norm));
  require(!is_normed || config.attention.qk_norm != family.qk_norm ||
              config.attention.qk_norm_epsilon == config.epsilon,
          "qk_norm_epsilon=" + value_text(config.attention.qk_norm_epsilon));
  require(config.attention.output_gate == OutputGate::none,
          std::string("output_gate=") + output_gate_name(config.attention.output_gate));
  require(!config.attention.exclusive, "exclusive=true");
  require(config.embedding_scale == (family.gemma > 0 ? 0 : 1),
          "embedding_scale=" + value_text(config.embedding_scale));
  require(family.gemma > 0 ? query_scalar(attention.score_scale) > 0 : attention.score_scale == 0,
          "score_scale=" + value_text(attention.score_scale));
  require(!attention.learned_softcap, "learned_softcap=true");
  require(family.gemma == 2 || attention.softcap == 0, "softcap=" + value_text(config.attention.softcap));
  require(!config.attention.sinks, "sinks=true");
  require(config.attention.weighting == AttentionWeighting::softmax,
          std::string("weighting=") + weighting_name(config.attention.weighting));
  require(is_gpt2 || *attention.output_bias == (family.query_bias ? false : attention.bias),
          std::string("attention_output_bias=") + (*attention.output_bias ? "true" : "false"));
  require(is_gpt2 || family.attention_bias || attention.bias == family.query_bias,
          std::string("attention_bias=") + (attention.bias ? "true" : "false"));
  require(is_gpt2 || family.mlp_bias || !config.feed_forward_bias, "feed_forward_bias=true");
  require(config.window == 0 || family.window, "window=" + number(config.window));
  require(config.windows.empty() || family.windows, "windows=" + config.windows);
  const bool is_scaled = rotations.factor != 1 || rotations.original_context > 0;
  require(family.gemma == 3 ? config.window == 0 || !is_scaled || config.window_rotary_base > 0
                            : config.window_rotary_base == 0,
          "window_rotary_base=" + value_text(config.window_rotary_base));
  require(config.sublayer_norms == family.norms,
          std::string("sublayer_norms=") + name_of(config.sublayer_norms));
  require(!config.value_residual, "value_residual=true");
  require(config.kv_sharing == 1, "kv_sharing=" + number(config.kv_sharing));
  require(family.gemma > 0 || config.logit_softcap == 0, "logit_softcap=" + value_text(config.logit_softcap));
  require(!config.fix_norm, "fix_norm=true");
  require(!config.embedding_norm, "embedding_norm=true");
  require(!config.embedding_mixing, "embedding_mixing=true");
  require(config.value_embeddings == ValueEmbeddings::none,
          std::string("value_embeddings=") + name_of(config.value_embeddings));
  require(config.short_convolution == 0, "short_convolution=" + number(config.short_convolution));
  require(config.gated != is_gpt2, config.gated ? "gated=true" : "gated=false");
  if (!problems.empty()) {
    throw CheckpointError(program + (program.back() == 's' ? "' " : "'s ") + family.type + ", which has " +
                          family.has + " as this model has, cannot express " + problems);
  }
}

std::string hugging_face_json(const DecoderOnlyConfig& config, DType type, const ControlTokens& tokens) {
  const HuggingFaceFamily& family = hugging_face_family(config);
  check_expressible(config, "transformers", family);
  Json json = config.norm == NormKind::layer ? gpt2_json(config) : llama_json(config, family);
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
