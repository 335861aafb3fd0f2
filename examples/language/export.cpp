#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/shared/changed_options.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>

#include <algorithm>

namespace tapeformer {
namespace {

const std::vector<ExportFormat>& export_formats() {
  static const std::vector<ExportFormat> formats = {transformers_export(), gguf_export()};
  return formats;
}

/// The options whose names differ from those of the fields.
const std::map<std::string, std::string> kOtherNames = {
    {"attention_bias", "bias"},     {"feed_forward_bias", "bias"},       {"prefix", "objective"},
    {"bidirectional", "objective"}, {"activation", "feed_forward_kind"}, {"gated", "feed_forward_kind"}};

}  // namespace

void ExportOptions::add_to(const Command& command) {
  std::vector<std::string> names, helps;
  for (const ExportFormat& other : export_formats()) {
    names.emplace_back(other.models.name);
    helps.push_back(other.models.name + std::string(", ") + other.help);
  }
  command.required("--run", run, "the run folder");
  command.required("--output", output,
                   "the folder to write, which must not hold anything; for gguf, the file");
  command.option("--format", format, joined(helps, ", or ")).one_of(names);
  command.option("--type", type, "type of the matrices in a gguf file: f32, f16 or q8_0")
      .one_of({"f32", "f16", "q8_0"});
  command.flag("--adapters", adapters, "of transformers: only the adapters of a run with --lora, for PEFT");
  add_average_option(command, average);
  command.option("--tokenizer-model", tokenizer_model, "a tokenizer to use instead of the folder's own")
      .not_empty();
}

void ExportOptions::refuse_ignored(const Command& command) const {
  for (const ExportFormat& other : export_formats())
    for (const char* const option : other.own_options)
      if (format != other.models.name)
        command.refuse({option}, std::string("without --format ") + other.models.name);
  if (adapters) command.refuse({"--tokenizer-model"}, "with --adapters");
}

std::string exports_text(const DecoderOnlyConfig& config, const Tokenizer* tokenizer) {
  std::vector<std::pair<std::string, std::string>> texts;  // of formats with the same one, their names
  for (const ExportFormat& format : export_formats()) {
    const Expression expression = expression_in(format.models, config);
    const std::string wants = wants_text(changed_options<LanguageOptions>(config, expression, kOtherNames));
    std::string text = " not with this tokenizer";
    if (!tokenizer || format.has_tokenizer(*tokenizer, config.vocabulary))
      text = (wants.empty() ? "" : " only with " + wants) + " (" + expression.family->title + ")";
    if (!texts.empty() && texts.back().second == text)
      texts.back().first += std::string(" and ") + format.models.name;
    else
      texts.emplace_back(format.models.name, text);
  }
  return joined(texts, "; ", [](const auto& of) { return of.first + of.second; });
}

int export_model(const ExportOptions& options) {
  LanguageRun run = LanguageRun::load(options.run, options.average, options.tokenizer_model);
  const ExportFormat& format =
      *std::find_if(export_formats().begin(), export_formats().end(),
                    [&](const ExportFormat& known) { return options.format == known.models.name; });
  const DecoderOnlyConfig& config = run.model.config();
  std::string remedy;
  for (const ExportFormat& other : export_formats())
    if (expression_in(other.models, config).changes.empty())
      remedy += std::string("--format ") + other.models.name + ", or ";
  require_expressed<LanguageOptions>(format.models, config, kOtherNames, remedy);
  format.write(run, options);
  return kExitSuccess;
}

}  // namespace tapeformer
