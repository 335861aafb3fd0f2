#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/hugging_face_config.h>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

/// Skips the fields that every model may have and none computes with.
void pass_over(JsonFields& fields) {
  fields.ignore({"model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache",
                 "initializer_range", "gradient_checkpointing", "chunk_size_feed_forward", "is_decoder",
                 "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
                 "tokenizer_class", "prefix", "output_attentions", "output_hidden_states", "return_dict",
                 "torchscript", "use_bfloat16", "tf_legacy_loss", "tie_encoder_decoder",
                 "attn_implementation", "task_specific_params", "finetuning_task", "problem_type", "id2label",
                 "label2id", "num_labels",
                 // Settings of generation, which older versions kept here.
                 "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
                 "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
                 "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
                 "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
                 "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
                 "suppress_tokens", "begin_suppress_tokens"});
  fields.demand("pruned_heads", Json::object());
  fields.demand("is_encoder_decoder", false);
  fields.demand("add_cross_attention", false);
  fields.demand("quantization_config", nullptr);
  fields.demand("auto_map", nullptr);  // code of its own
}

}  // namespace

FamilyModel hugging_face_model(const std::string& text) {
  try {
    JsonFields fields(parse_json(text, "the configuration", kConfigLevels), "");
    if (fields.has("model") && !fields.has("model_type"))
      throw CheckpointError("is of a run, and not of transformers; try DecoderOnly::load()");
    const Family& family = family_of_type(fields.text("model_type"));
    pass_over(fields);
    FamilyModel model{&family, ConfigMap::read(family.describe, fields)};
    fields.finish();
    model.config.check();
    return model;
  } catch (const CheckpointError&) {
    throw;
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
}

std::string hugging_face_json(const DecoderOnlyConfig& config, DType type, const ControlTokens& tokens) {
  const Expression expression = expression_in(transformers_format(), config);
  expression.check();
  Json json;
  json["architectures"] = {expression.family->architecture};
  json["model_type"] = expression.family->type;
  ConfigMap::write(expression.family->describe, config, json);
  const auto checked = [&](const char* name, std::int32_t id) {
    if (id >= 0 && id < config.vocabulary) return id;
    throw CheckpointError(
        format("{} must be within the vocabulary of {}; got {}", name, config.vocabulary, id));
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
