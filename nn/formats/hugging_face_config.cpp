#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/hugging_face_config.h>

#include <algorithm>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

template <class Config>
constexpr bool kIsTranslation = std::is_same_v<Config, EncoderDecoderConfig>;

/// Skips the fields that every model may have and none uses.
void pass_over(JsonFields& fields, bool is_encoder_decoder) {
  fields.ignore({"model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache",
                 "initializer_range", "gradient_checkpointing", "chunk_size_feed_forward", "is_decoder",
                 "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
                 "tokenizer_class", "prefix", "output_attentions", "output_hidden_states", "return_dict",
                 "torchscript", "use_bfloat16", "tf_legacy_loss", "attn_implementation",
                 "task_specific_params", "finetuning_task", "problem_type", "id2label", "label2id",
                 "num_labels", "transformers.js_config", "unsloth_fixed", "unsloth_version", "output_past",
                 // Settings of generation, which older versions kept here.
                 "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
                 "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
                 "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
                 "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
                 "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
                 "suppress_tokens", "begin_suppress_tokens"});
  fields.demand("pruned_heads", Json::object());
  fields.demand("is_encoder_decoder", is_encoder_decoder);
  fields.demand("tie_encoder_decoder", false);
  fields.demand("add_cross_attention", false);
  const char* const kQuantized = "quantization_config";
  if (fields.has(kQuantized) && fields.object(kQuantized).text("quant_method", "") == "mxfp4")
    fields.fail(kQuantized, std::string("= mxfp4: ") + kMxfp4Refusal);
  fields.demand(kQuantized, nullptr);
  fields.demand("auto_map", nullptr);  // code of its own
}

}  // namespace

template <class Config>
FamilyModelOf<Config> hugging_face_model(const std::string& text) {
  try {
    JsonFields fields(parse_json(text, "the configuration", kConfigLevels), "");
    if (fields.has("model") && !fields.has("model_type"))
      throw CheckpointError(format("belongs to a run, not to transformers; try {}::load()",
                                   kIsTranslation<Config> ? "EncoderDecoder" : "DecoderOnly"));
    const FamilyOf<Config>& family = family_of_type<Config>(fields.text("model_type"));
    pass_over(fields, kIsTranslation<Config>);
    FamilyModelOf<Config> model{&family, ConfigMapOf<Config>::read(family.describe, fields)};
    fields.finish();
    model.config.check();
    return model;
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
}

template <class Config>
std::string hugging_face_json(const Config& config, DType type, const ControlTokens& tokens) {
  const ExpressionOf<Config> expression = expression_in(transformers_format<Config>(), config);
  expression.check();
  Json json;
  json["architectures"] = {expression.family->architecture};
  json["model_type"] = expression.family->type;
  ConfigMapOf<Config>::write(expression.family->describe, config, json);
  const auto checked = [&](const char* name, std::int32_t id) {
    Index vocabulary = 0;  // of outputs, or for padding the smallest one
    if constexpr (kIsTranslation<Config>)
      vocabulary = name == std::string("pad_token_id")
                       ? std::min(config.source_vocabulary, config.target_vocabulary)
                       : config.target_vocabulary;
    else
      vocabulary = config.vocabulary;
    if (id >= 0 && id < vocabulary) return id;
    throw CheckpointError(format("{} must be within the vocabulary of {}; got {}", name, vocabulary, id));
  };
  // null if there is none, because transformers' defaults may be outside the vocabulary.
  const auto write = [&](const char* name, const std::optional<std::int32_t>& id) {
    const Json value = id ? Json(checked(name, *id)) : Json(), written = json.value(name, value);
    if (id && written != value)
      throw CheckpointError(format("{} must be {} in {} models; got {}", name, written.get<std::int32_t>(),
                                   expression.family->title, *id));
    json[name] = written;
  };
  write("bos_token_id", kIsTranslation<Config> ? std::nullopt : tokens.begin);
  json["eos_token_id"] = Json();
  for (const std::int32_t id : tokens.ends) json["eos_token_id"].push_back(checked("eos_token_id", id));
  if (tokens.ends.size() == 1) json["eos_token_id"] = tokens.ends[0];
  write("pad_token_id", tokens.pad);
  if (kIsTranslation<Config>) {
    json["forced_eos_token_id"] = json["eos_token_id"];
    write("decoder_start_token_id", tokens.begin.value_or(0));  // which transformers demands
  }
  for (const char* const name : {"dtype", "torch_dtype"})  // the newer name and the older one
    json[name] = type == DType::f64 ? "float64" : "float32";
  return json.dump(2) + "\n";
}

template FamilyModelOf<DecoderOnlyConfig> hugging_face_model(const std::string&);
template FamilyModelOf<EncoderDecoderConfig> hugging_face_model(const std::string&);
template std::string hugging_face_json(const DecoderOnlyConfig&, DType, const ControlTokens&);
template std::string hugging_face_json(const EncoderDecoderConfig&, DType, const ControlTokens&);

}  // namespace tapeformer
