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
#include <tapeformer/examples/translation/run.h>
#include <tapeformer/nn/formats/hugging_face.h>

namespace tapeformer {
namespace {

/// Models of MarianMT alone, in folders of transformers.
const ModelFormatOf<EncoderDecoderConfig>& marian_format() {
  static const std::vector<TranslationFamily> marian = {family_of_type<EncoderDecoderConfig>("marian")};
  static const ModelFormatOf<EncoderDecoderConfig> format{"marian", marian};
  return format;
}

/// Throws: CheckpointError that says what the format wants instead
void require_marian(const EncoderDecoderConfig& config) {
  const ExpressionOf<EncoderDecoderConfig> expression = expression_in(marian_format(), config);
  if (expression.changes.empty()) return;
  TranslationOptions now, then;
  now.model = config, then.model = expression.nearest;
  const OptionChanges changes = changed_options(expression.changes, fields_of(now), fields_of(then),
                                                {{"norm_first", "post_norm"},
                                                 {"tie_target_head", "untied_head"},
                                                 {"tie_embeddings", "shared_vocabulary"}});
  throw CheckpointError(expression.refusal(has_text(changes), "a model trained with " + wants_text(changes)));
}

}  // namespace

void TranslationExportOptions::add_to(const Command& command) {
  command.option("--run", run, "the run folder").required().not_empty();
  command.option("--output", output, "the folder to write, which must not hold anything").required();
  command.option("--format", format, "marian, a folder of MarianMT for transformers").one_of({"marian"});
  add_average_option(command, average);
}

int export_translation(const TranslationExportOptions& options) {
  TranslationRun run = TranslationRun::load(options.run, options.average);
  require_marian(run.model.config());
  auto files = marian_files(*run.words.source, *run.words.target);
  const std::int32_t source_padding = run.words.source->padding(), padding = run.words.target->padding();
  if (source_padding != padding) {
    throw CheckpointError(
        format("{}: MarianMT pads both languages with one token; got {} and {}; try a model trained with "
               "--shared-vocabulary",
               options.run, source_padding, padding));
  }
  files.emplace_back("generation_config.json",
                     generation_config_json(run.words, run.model.config().max_length));
  std::vector<std::string> names = {"config.json", "model.safetensors"};
  for (const auto& [name, content] : files) names.push_back(name);
  PartialFolder folder(options.output, names);
  try {
    save_hugging_face(folder.path(), run.model,
                      {run.words.target->begin(), {*run.words.target->end()}, padding});
  } catch (const CheckpointError& error) {
    std::string text = error.what();
    if (text.find(folder.path()) == 0) text.replace(0, folder.path().size(), options.output);
    throw CheckpointError(text);
  }
  for (const auto& [name, content] : files) write_atomically(folder.file(name), content);
  folder.finish();
  print("{}: {}\n", options.output, joined(names, ", "));
  return kExitSuccess;
}

}  // namespace tapeformer
