#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/partial_folder.h>
#include <tapeformer/data/tokenizers/marian.h>
#include <tapeformer/examples/shared/changed_options.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/translation/export.h>
#include <tapeformer/examples/translation/generation_config.h>
#include <tapeformer/examples/translation/marian_folder.h>
#include <tapeformer/examples/translation/run.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/marian_npz.h>

#include <algorithm>

namespace tapeformer {
namespace {

using Files = std::map<std::string, std::string>;

/// A format that `export` writes.
struct TranslationFormat {
  const ModelFormatOf<EncoderDecoderConfig>& models;  ///< its name and its families
  const char* help;                                   ///< its description in --help
  std::vector<std::string> weights;                   ///< the files that `save` writes
  void (*save)(const std::string& folder, TranslationRun& run);
  /// Names and contents of all other files.
  Files (*files)(const TranslationRun& run);
};

void save_marian_mt(const std::string& folder, TranslationRun& run) {
  // transformers makes embeddings for padding, which must be within either vocabulary and has no effect.
  save_hugging_face(folder, run.model,
                    {run.words.target->begin(),
                     {*run.words.target->end()},
                     std::min(run.words.source->padding(), run.words.target->padding())});
}

Files marian_mt_files(const TranslationRun& run) {
  Files files = marian_files(*run.words.source, *run.words.target);
  files["generation_config.json"] = generation_config_json(run.words, run.model.config().max_length);
  return files;
}

void save_marian(const std::string& folder, TranslationRun& run) {
  save_marian_npz(folder + "/model.npz", run.model);
}

Files marian_own_files(const TranslationRun& run) {
  auto [names, files] = marian_vocabulary_files(*run.words.source, *run.words.target);
  files["decoder.yml"] = marian_decoder_yml(names);
  return files;
}

/// The config.json of the original model of transformers, with the fields of `now`.
std::string changed_config(const std::string& before, const std::string& now) {
  Json config = parse_json(before);
  const Json changed = parse_json(now);
  for (const auto& [field, value] : changed.items())
    if (field != "model_type" && field != "architectures" && !ends_with(field, "_token_id"))
      config[field] = value;
  return config.dump(2) + "\n";
}

Files files_of_origin(const TranslationRun& run) {
  return transformers_files_of(*run.words.target, run.words.sentences.languages);
}

void save_tuned(const std::string& folder, TranslationRun& run) {
  const SentenceFrame& frame = run.words.frame;
  const std::string config = folder + "/config.json";
  save_hugging_face(folder, run.model, {frame.begin, {frame.end}, frame.padding});
  write_atomically(config, changed_config(files_of_origin(run).at("config.json"), read_file(config)));
}

Files tuned_files(const TranslationRun& run) {
  Files files = files_of_origin(run);
  if (files.empty())
    throw CheckpointError(
        "[export] the format transformers is for fine-tuned models of BART, mBART, M2M100, NLLB, T5 and mT5; "
        "try --format marian");
  files.erase("config.json");
  return files;
}

const std::vector<TranslationFormat>& translation_formats() {
  // Only MarianMT's models, in folders of transformers.
  static const std::vector<TranslationFamily> marian = {family_of_type<EncoderDecoderConfig>("marian")};
  static const ModelFormatOf<EncoderDecoderConfig> marian_format{"marian", marian};
  static const std::vector<TranslationFormat> formats = {
      {marian_format,
       "a folder of MarianMT for transformers",
       {"config.json", "model.safetensors"},
       save_marian_mt,
       marian_mt_files},
      {transformers_format<EncoderDecoderConfig>(),
       "the family of transformers that a fine-tuned model came from",
       {"config.json", "model.safetensors"},
       save_tuned,
       tuned_files},
      {marian_npz_format(), "a folder for marian-decoder", {"model.npz"}, save_marian, marian_own_files}};
  return formats;
}

}  // namespace

void TranslationExportOptions::add_to(const Command& command) {
  std::vector<std::string> names, helps;
  for (const TranslationFormat& known : translation_formats()) {
    names.emplace_back(known.models.name);
    helps.push_back(names.back() + ", " + known.help);
  }
  command.required("--run", run, "the run folder");
  command.required("--output", output, "the folder to write, which must not hold anything");
  command
      .option("--format", format,
              joined(helps, ", or ") +
                  "; without it, the family that a fine-tuned model came from, or else marian")
      .one_of(names);
  add_average_option(command, average);
  FieldList languages = fields_of(sentences);
  languages.pop_back();  // an export cannot store the prefix
  add_options(command, std::move(languages));
}

int export_translation(const TranslationExportOptions& options) {
  TranslationRun run = TranslationRun::load(options.run, options.average, options.sentences);
  const std::string usual = files_of_origin(run).empty() ? "marian" : "transformers";
  const std::string& name = options.format.empty() ? usual : options.format;
  const TranslationFormat& format =
      *std::find_if(translation_formats().begin(), translation_formats().end(),
                    [&](const TranslationFormat& known) { return name == known.models.name; });
  require_expressed<TranslationOptions>(format.models, run.model.config(),
                                        {{"norm_first", "post_norm"},
                                         {"tie_target_head", "untied_head"},
                                         {"tie_embeddings", "shared_vocabulary"}});
  const Files files = format.files(run);
  std::vector<std::string> names = format.weights;
  for (const auto& [file, content] : files) names.push_back(file);
  PartialFolder folder(options.output, names);
  folder.fill([&] {
    format.save(folder.path(), run);
    for (const auto& [file, content] : files) write_atomically(folder.file(file), content);
  });
  folder.finish();
  print("{}: {}\n", options.output, joined(names, ", "));
  return kExitSuccess;
}

}  // namespace tapeformer
