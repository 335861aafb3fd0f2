#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/peft.h>

#include <nlohmann/json.hpp>

#include <cstdio>

namespace tapeformer {

std::string base_of(const std::string& folder) {
  const std::string base = peft_base(folder);
  return base.empty() ? folder : base;
}

namespace {

void check_folder(const std::string& folder) {
  check_run_folder(folder, "source.vocabulary", "train_translation",
                   "a run folder of train_language_model, or a checkpoint folder of transformers");
}

DecoderOnly load_model(const std::string& folder, Index average) {
  if (const std::string base = base_of(folder); base != folder) {
    DecoderOnly model = load_model(base, average);
    apply_peft(folder, model);
    return model;
  }
  check_folder(folder);
  if (is_hugging_face(folder)) {
    if (average > 0) throw Error("--average needs a run folder; " + folder + " keeps one set of weights");
    return load_hugging_face(folder);
  }
  check_trained(folder);
  DecoderOnly model = DecoderOnly::load(folder);
  if (average > 0) RunFolder(folder).load_average(average, model);
  return without_adapters(std::move(model));
}

}  // namespace

DecoderOnlyConfig model_config_in(const std::string& asked) {
  const std::string folder = base_of(asked);
  check_folder(folder);
  const std::string json = read_file(folder + "/config.json");
  try {
    return is_hugging_face(folder) ? hugging_face_config(json) : DecoderOnlyConfig::from_json(json);
  } catch (const CheckpointError& error) {
    throw CheckpointError(folder + "/config.json: " + error.what());
  }
}

std::optional<LanguageOptions> training_in(const std::string& asked) {
  const std::string folder = base_of(asked);
  if (is_hugging_face(folder)) return {};
  return options_of<LanguageOptions>(RunFolder(folder));
}

LanguageRun LanguageRun::load(const std::string& asked, Index average, const std::string& tokenizer_path) {
  const std::string folder = base_of(asked), &from = tokenizer_path.empty() ? folder : tokenizer_path;
  LanguageRun run{load_model(asked, average), find_tokenizer(from)};
  const Index rows = run.model.config().vocabulary, tokens = run.tokenizer->vocabulary_size();
  if (tokens > rows)
    throw DataError(from, 0,
                    format("is a tokenizer of {}, but the model has {}", number_of(tokens, "token"), rows));
  if (!tokenizer_path.empty() && tokens < rows)
    std::fputs(format("note: {} has {}, but the model {}; is it the model's own?\n", tokenizer_path,
                      number_of(tokens, "token"), rows)
                   .c_str(),
               stderr);
  if (is_hugging_face(folder) || !tokenizer_path.empty()) return run;
  const Json config = RunFolder(folder).config();
  const auto found = config.find("tokenizer_fingerprint");
  if (found != config.end() && !found->is_number_unsigned())
    throw CheckpointError(
        folder + "/config.json: was not written by this program: tokenizer_fingerprint is not a number");
  if (found == config.end() || found->get<std::uint64_t>() != hash_text(run.tokenizer->serialize()))
    throw DataError(folder + "/" + kTokenizerFile, 0,
                    "is not the tokenizer that the weights were trained with; restore it");
  return run;
}

DecoderOnly initial_model(const LanguageOptions& options, Index vocabulary) {
  Generator random(options.training.seed);
  if (options.from.empty()) return DecoderOnly(options.model_config(vocabulary), random);
  DecoderOnly trained = load_model(options.from, 0);
  DecoderOnlyConfig config = trained.config();
  config.attention.dropout = options.model.attention.dropout;
  config.embedding_dropout = options.model.embedding_dropout;
  config.residual_dropout = options.model.residual_dropout;
  config.feed_forward_dropout = options.model.feed_forward_dropout;
  config.attention.index_top_k = options.model.attention.index_top_k;
  config.attention.index_loss = options.model.attention.index_loss;
  set_objective(config, objective_of(options.model).name);  // only masks attention: no weight changes
  config.adapter = options.model.adapter;
  DecoderOnly model(config, random);
  copy_weights(trained, model);
  return model;
}

}  // namespace tapeformer
