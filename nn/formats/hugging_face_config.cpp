#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/hugging_face_config.h>
#include <tapeformer/nn/formats/hugging_face_family.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <cmath>
#include <utility>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

Unary activation_of(JsonFields& fields, const char* name, const char* otherwise) {
  const std::string value = fields.text(name, otherwise);
  for (const auto& [theirs, ours] : kHuggingFaceActivations) {
    if (value == theirs) return ours;
  }
  fields.fail(name, "= " + value + " changes the arithmetic and is not implemented");
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

void read_yarn(JsonFields& fields, RotaryConfig& rotations, Index context) {
  rotations.yarn = true;
  rotations.factor = fields.number("factor");
  rotations.original_context = fields.size("original_max_position_embeddings", context);
  rotations.low_frequency = fields.number("beta_slow", 1);
  rotations.high_frequency = fields.number("beta_fast", 32);
  if (rotations.low_frequency >= rotations.high_frequency) {
    fields.fail("beta_slow", "must be below beta_fast");
  }
  const auto grown = [&](double slope) {
    return rotations.factor <= 1 ? 1 : 0.1 * slope * std::log(rotations.factor) + 1;
  };
  rotations.attention_factor = grown(1);
  if (fields.has("mscale") && fields.has("mscale_all_dim")) {
    rotations.attention_factor = grown(fields.number("mscale")) / grown(fields.number("mscale_all_dim"));
  }
  rotations.attention_factor = fields.number("attention_factor", rotations.attention_factor);
  fields.demand("truncate", true);
}

void read_scaling(JsonFields fields, RotaryConfig& rotations, Index context) {
  const char* const type_name = fields.has("rope_type") ? "rope_type" : "type";
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
  } else if (type == "yarn") {
    read_yarn(fields, rotations, context);
  } else if (type == "default") {
    fields.ignore({"factor"});
  } else {
    fields.fail(type_name, "= " + type + " changes the arithmetic and is not implemented");
  }
  fields.ignore({"type"});  // the older name, which some files have beside the new one
  fields.finish();
}

/// Gemma 3's rope_parameters, of layers with a window and of those without.
void read_both_scalings(JsonFields both, DecoderOnlyConfig& config) {
  if (both.has("sliding_attention")) {
    JsonFields of_windows = both.object("sliding_attention");
    config.window_rotary_base = of_windows.number("rope_theta", config.window_rotary_base);
    of_windows.demand("rope_type", "default");
    of_windows.demand("partial_rotary_factor", 1.0);
    of_windows.finish();
  }
  if (both.has("full_attention"))
    read_scaling(both.object("full_attention"), config.attention.rotations, config.context);
  both.finish();
}

void read_rotations(JsonFields& fields, const HuggingFaceFamily& family, DecoderOnlyConfig& config) {
  const bool has_window_base = family.gemma == 3;
  RotaryConfig& rotations = config.attention.rotations;
  rotations.layout = RotaryLayout::half_split;
  rotations.base = fields.number("rope_theta", has_window_base ? 1e6 : 1e4);
  if (has_window_base) config.window_rotary_base = fields.number("rope_local_base_freq", 1e4);
  fields.demand("partial_rotary_factor", 1.0);
  const bool is_old = fields.has("rope_scaling"), is_new = fields.has("rope_parameters");
  if (is_old && is_new) fields.fail("rope_scaling", "and rope_parameters are both there");
  if (!is_old && !is_new) return;
  JsonFields scaling = fields.object(is_new ? "rope_parameters" : "rope_scaling");
  if (is_new && has_window_base) return read_both_scalings(std::move(scaling), config);
  read_scaling(std::move(scaling), rotations, config.context);
}

/// Which layers have the window: by layer_types, or before there were such by max_window_layers.
void read_windows(JsonFields& fields, const HuggingFaceFamily& family, DecoderOnlyConfig& config) {
  if (!family.window) {
    fields.demand("sliding_window", nullptr);
    fields.demand("use_sliding_window", false);
    return;
  }
  const bool has_flag = family.windows && family.gemma == 0;
  const bool has_window = !has_flag || fields.flag("use_sliding_window", false);
  const Index window = fields.has("sliding_window") ? fields.size("sliding_window")
                       : family.gemma > 0           ? 4096
                                                    : 0;
  const Index first = has_flag ? fields.count("max_window_layers", 28) : 0,
              pattern = family.gemma == 3 ? fields.size("sliding_window_pattern", 6) : 2;
  if (has_window) config.window = window;
  if (!family.windows) return;
  std::string letters;
  for (const std::string& type : fields.texts("layer_types")) {
    if (type != "sliding_attention" && type != "full_attention")
      fields.fail("layer_types", "= " + type + " changes the arithmetic and is not implemented");
    letters += type == "full_attention" ? 'L' : 'S';
  }
  if (letters.empty()) {
    for (Index i = 0; i < config.layers; ++i)
      letters += (family.gemma > 0 ? (i + 1) % pattern != 0 : i >= first) && config.window > 0 ? 'S' : 'L';
  }
  if (static_cast<Index>(letters.size()) != config.layers)
    fields.fail("layer_types", "must have an entry for each layer");
  const bool has_sliding = letters.find('S') != std::string::npos;
  if (has_sliding && config.window == 0)
    fields.fail("layer_types", "has sliding_attention, and there is no sliding_window");
  if (!has_sliding) config.window = 0, config.window_rotary_base = 0;
  if (has_sliding && letters.find('L') != std::string::npos) config.windows = letters;
}

void read_gemma(JsonFields& fields, const HuggingFaceFamily& family, DecoderOnlyConfig& config) {
  const auto cap = [&](const char* name, double otherwise) {
    return fields.is_null(name) ? 0 : fields.number(name, otherwise);
  };
  config.embedding_scale = 0;
  config.attention.score_scale = 1 / std::sqrt(fields.number("query_pre_attn_scalar", 256));
  if (family.gemma == 2) config.attention.softcap = cap("attn_logit_softcapping", 50);
  if (family.gemma == 3) fields.demand("attn_logit_softcapping", nullptr);  // which transformers passes over
  config.logit_softcap = cap("final_logit_softcapping", family.gemma == 2 ? 30 : 0);
  fields.demand("use_bidirectional_attention", false);
  fields.ignore({"hidden_act"});            // an older name, which transformers does not read either
  fields.ignore({"cache_implementation"});  // how transformers keeps keys and values
}

DecoderOnlyConfig read_llama(JsonFields& fields, const HuggingFaceFamily& family) {
  DecoderOnlyConfig config;
  config.vocabulary = fields.size("vocab_size");
  config.context = fields.size("max_position_embeddings", family.context);
  config.width = fields.size("hidden_size");
  config.layers = fields.size("num_hidden_layers");
  config.attention.heads = fields.size("num_attention_heads");
  const Index groups =
      fields.size("num_key_value_heads", family.key_heads > 0 ? family.key_heads : config.attention.heads);
  if (groups != config.attention.heads) {
    config.attention.kind = groups == 1 ? "mqa" : "gqa";
    if (groups > 1) config.attention.groups = groups;
  }
  const Index head_width = std::max<Index>(config.width / config.attention.heads, 1);
  config.attention.key_width =
      fields.size("head_dim", family.gemma > 0                ? 256
                              : family.qk_norm == QkNorm::rms ? 128  // Qwen3's default
                                                              : head_width);
  config.feed_forward = fields.size("intermediate_size");
  config.gated = true;
  config.activation = family.gemma > 0 ? activation_of(fields, "hidden_activation", "gelu_pytorch_tanh")
                                       : activation_of(fields, "hidden_act", "silu");
  if (family.gemma > 0) read_gemma(fields, family, config);
  config.norm = NormKind::rms;
  config.epsilon = fields.number("rms_norm_eps", family.epsilon);
  config.sublayer_norms = family.norms;
  config.positions = PositionKind::rotary;
  read_rotations(fields, family, config);
  config.attention.bias = family.attention_bias ? fields.flag("attention_bias", false) : family.query_bias;
  if (family.query_bias) config.attention.output_bias = false;
  config.attention.dropout = fields.rate("attention_dropout", 0);
  config.attention.qk_norm = family.qk_norm;
  if (family.qk_norm != QkNorm::none) config.attention.qk_norm_epsilon = config.epsilon;
  config.feed_forward_bias = family.mlp_bias && fields.flag("mlp_bias", false);
  config.tie_head = fields.flag("tie_word_embeddings", family.gemma > 0);
  read_windows(fields, family, config);
  fields.ignore({"pretraining_tp"});  // the same products, computed in slices
  return config;
}

}  // namespace

DecoderOnlyConfig hugging_face_config(const std::string& text) {
  try {
    JsonFields fields(parse_json(text, "the configuration", kConfigLevels), "");
    if (fields.has("model") && !fields.has("model_type"))
      throw CheckpointError("is of a run, and not of transformers; try DecoderOnly::load()");
    const std::string type = fields.text("model_type");
    const HuggingFaceFamily& family = hugging_face_family(type);
    pass_over(fields);
    const DecoderOnlyConfig config = type == "gpt2" ? read_gpt2(fields) : read_llama(fields, family);
    fields.finish();
    config.check();
    return config;
  } catch (const CheckpointError&) {
    throw;
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
}

}  // namespace tapeformer
