#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/formats/hugging_face_config.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <array>
#include <utility>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

// If one of ours has several names there, the first is written.
constexpr std::array<std::pair<const char*, Unary>, 9> kActivations{{{"gelu_new", Unary::gelu_tanh},
                                                                     {"gelu_pytorch_tanh", Unary::gelu_tanh},
                                                                     {"gelu_python_tanh", Unary::gelu_tanh},
                                                                     {"gelu", Unary::gelu},
                                                                     {"gelu_python", Unary::gelu},
                                                                     {"relu", Unary::relu},
                                                                     {"relu2", Unary::relu_squared},
                                                                     {"silu", Unary::silu},
                                                                     {"swish", Unary::silu}}};

Unary activation_of(JsonFields& fields, const char* name, const char* otherwise) {
  const std::string value = fields.text(name, otherwise);
  for (const auto& [theirs, ours] : kActivations) {
    if (value == theirs) return ours;
  }
  fields.fail(name, "= " + value + " changes the arithmetic and is not implemented");
}

const char* name_in_transformers(Unary activation) {
  for (const auto& [theirs, ours] : kActivations) {
    if (ours == activation) return theirs;
  }
  throw CheckpointError(std::string("transformers has no activation ") + name_of(activation));
}

/// Skips the fields that every model may have and none computes with.
void pass_over(JsonFields& fields) {
  fields.ignore({"model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache",
                 "initializer_range", "gradient_checkpointing", "chunk_size_feed_forward", "is_decoder"});
  fields.ignore({"bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
                 "tokenizer_class", "prefix"});
  fields.ignore({"output_attentions", "output_hidden_states", "return_dict", "torchscript", "use_bfloat16",
                 "tf_legacy_loss", "tie_encoder_decoder", "attn_implementation"});
  fields.ignore(
      {"task_specific_params", "finetuning_task", "problem_type", "id2label", "label2id", "num_labels"});
  // Settings of generation, which older versions kept here.
  fields.ignore({"max_length", "min_length", "do_sample", "early_stopping", "num_beams"});
  fields.ignore({"num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p"});
  fields.ignore({"typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size"});
  fields.ignore({"bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate",
                 "forced_bos_token_id"});
  fields.ignore({"forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
                 "suppress_tokens", "begin_suppress_tokens"});
  fields.demand("pruned_heads", Json::object());
  fields.demand("is_encoder_decoder", false);
  fields.demand("add_cross_attention", false);
  fields.demand("quantization_config", nullptr);
  fields.demand("auto_map", nullptr);  // code of its own
}

DecoderOnlyConfig read_gpt2(JsonFields& fields) {
  DecoderOnlyConfig config;
  config.vocabulary = fields.size("vocab_size");
  config.context = fields.size("n_positions", 1024);
  config.width = fields.size("n_embd");
  config.layers = fields.size("n_layer");
  config.attention.heads = fields.size("n_head");
  config.feed_forward = fields.size("n_inner", 4 * config.width);
  config.activation = activation_of(fields, "activation_function", "gelu_new");
  config.epsilon = fields.number("layer_norm_epsilon", 1e-5);
  config.embedding_dropout = fields.rate("embd_pdrop", 0.1);
  config.residual_dropout = fields.rate("resid_pdrop", 0.1);
  config.attention.dropout = fields.rate("attn_pdrop", 0.1);
  config.tie_head = fields.flag("tie_word_embeddings", true);
  fields.demand("scale_attn_weights", true);
  fields.demand("scale_attn_by_inverse_layer_idx", false);
  // An order of computation for half precision, a size that nothing depends on, and a head for other tasks.
  fields.ignore({"reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj", "summary_activation",
                 "summary_proj_to_labels", "summary_first_dropout"});
  return config;
}

void read_scaling(JsonFields fields, const char* type_name, RotaryConfig& rotations, Index context) {
  const std::string type = fields.text(type_name, "default");
  rotations.base = fields.number("rope_theta", rotations.base);
  fields.demand("partial_rotary_factor", 1.0);
  if (type == "linear") {
    rotations.factor = fields.number("factor");
  } else if (type == "llama3") {
    rotations.factor = fields.number("factor");
    rotations.original_context = fields.size("original_max_position_embeddings", context);
    rotations.low_frequency = fields.number("low_freq_factor");
    rotations.high_frequency = fields.number("high_freq_factor");
    if (rotations.low_frequency >= rotations.high_frequency) {
      fields.fail("low_freq_factor", "must be below high_freq_factor");
    }
  } else if (type == "default") {
    fields.ignore({"factor"});
  } else {
    fields.fail(type_name, "= " + type + " changes the arithmetic and is not implemented");
  }
  fields.ignore({"type"});  // the older name, which some files have beside the new one
  fields.finish();
}

RotaryConfig read_rotations(JsonFields& fields, Index context) {
  RotaryConfig rotations;
  rotations.layout = RotaryLayout::half_split;
  rotations.base = fields.number("rope_theta", 10000);
  fields.demand("partial_rotary_factor", 1.0);
  const bool is_old = fields.has("rope_scaling"), is_new = fields.has("rope_parameters");
  if (is_old && is_new) fields.fail("rope_scaling", "and rope_parameters are both there");
  if (!is_old && !is_new) return rotations;
  JsonFields scaling = fields.object(is_new ? "rope_parameters" : "rope_scaling");
  const char* const type_name = scaling.has("rope_type") ? "rope_type" : "type";
  read_scaling(std::move(scaling), type_name, rotations, context);
  return rotations;
}

DecoderOnlyConfig read_llama(JsonFields& fields) {
  DecoderOnlyConfig config;
  config.vocabulary = fields.size("vocab_size");
  config.context = fields.size("max_position_embeddings", 2048);
  config.width = fields.size("hidden_size");
  config.layers = fields.size("num_hidden_layers");
  config.attention.heads = fields.size("num_attention_heads");
  const Index groups = fields.size("num_key_value_heads", config.attention.heads);
  if (groups != config.attention.heads) {
    config.attention.kind = groups == 1 ? "mqa" : "gqa";
    if (groups > 1) config.attention.groups = groups;
  }
  config.attention.key_width =
      fields.size("head_dim", std::max<Index>(config.width / config.attention.heads, 1));
  config.feed_forward = fields.size("intermediate_size");
  config.gated = true;
  config.activation = activation_of(fields, "hidden_act", "silu");
  config.norm = NormKind::rms;
  config.epsilon = fields.number("rms_norm_eps", 1e-6);
  config.positions = PositionKind::rotary;
  config.attention.rotations = read_rotations(fields, config.context);
  config.attention.bias = fields.flag("attention_bias", false);
  config.attention.dropout = fields.rate("attention_dropout", 0);
  config.feed_forward_bias = fields.flag("mlp_bias", false);
  config.tie_head = fields.flag("tie_word_embeddings", false);
  fields.demand("sliding_window", nullptr);
  fields.demand("use_sliding_window", false);
  fields.ignore({"pretraining_tp"});  // the same products, computed in slices
  return config;
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

Json llama_json(const DecoderOnlyConfig& config) {
  const AttentionConfig attention = config.attention_config().resolved();
  const RotaryConfig& rotations = config.attention.rotations;
  Json json;
  json["architectures"] = {"LlamaForCausalLM"};
  json["model_type"] = "llama";
  json["vocab_size"] = config.vocabulary;
  json["max_position_embeddings"] = config.context;
  json["hidden_size"] = config.width;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.attention.heads;
  json["num_key_value_heads"] = attention.key_heads();
  json["head_dim"] = attention.key_width;
  json["intermediate_size"] = config.hidden_width();
  json["hidden_act"] = name_in_transformers(config.activation);
  json["rms_norm_eps"] = config.epsilon;
  json["attention_bias"] = config.attention.bias;
  json["attention_dropout"] = config.attention.dropout;
  json["mlp_bias"] = config.feed_forward_bias;
  json["rope_theta"] = rotations.base;  // not in rope_parameters, so that old versions find it too
  if (rotations.original_context > 0) {
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

DecoderOnlyConfig hugging_face_config(const std::string& text) {
  try {
    JsonFields fields(parse_json(text, "the configuration", kConfigLevels), "");
    const std::string type = fields.text("model_type");
    if (type != "gpt2" && type != "llama") {
      fields.fail("model_type", "must be gpt2 or llama; got " + type);
    }
    pass_over(fields);
    const DecoderOnlyConfig config = type == "gpt2" ? read_gpt2(fields) : read_llama(fields);
    fields.finish();
    config.check();
    return config;
  } catch (const CheckpointError&) {
    throw;
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
}

void check_expressible(const DecoderOnlyConfig& config, const std::string& program) {
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
  require(!config.attention.qk_norm, "qk_norm=true");
  require(config.logit_softcap == 0, "logit_softcap=" + value_text(config.logit_softcap));
  require(!config.fix_norm, "fix_norm=true");
  require(!config.embedding_norm, "embedding_norm=true");
  require(!config.embedding_mixing, "embedding_mixing=true");
  require(config.value_embeddings == ValueEmbeddings::none,
          std::string("value_embeddings=") + name_of(config.value_embeddings));
  require(config.short_convolution == 0, "short_convolution=" + number(config.short_convolution));
  require(config.gated != is_gpt2, config.gated ? "gated=true" : "gated=false");
  if (!problems.empty()) {
    throw CheckpointError(program + (program.back() == 's' ? "' " : "'s ") + (is_gpt2 ? "gpt2" : "llama") +
                          ", which has " + (is_gpt2 ? "layer" : "RMS") +
                          " norm as this model has, cannot express " + problems);
  }
}

std::string hugging_face_json(const DecoderOnlyConfig& config, DType type, const ControlTokens& tokens) {
  check_expressible(config, "transformers");
  Json json = config.norm == NormKind::layer ? gpt2_json(config) : llama_json(config);
  json["tie_word_embeddings"] = config.tie_head;
  for (const auto& [name, id] :
       {std::pair("bos_token_id", tokens.begin), std::pair("eos_token_id", tokens.end)}) {
    if (id && (*id < 0 || *id >= config.vocabulary)) {
      throw CheckpointError(std::string(name) + " must be within the vocabulary of " +
                            std::to_string(config.vocabulary) + "; got " + std::to_string(*id));
    }
    // null if there is none, because the defaults of transformers may be outside the vocabulary.
    json[name] = id ? Json(*id) : Json();
  }
  for (const char* const name : {"dtype", "torch_dtype"}) {  // the newer name and the older one
    json[name] = type == DType::f64 ? "float64" : "float32";
  }
  return json.dump(2) + "\n";
}

}  // namespace tapeformer
