#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/examples/language/data.h>
#include <tapeformer/examples/language/evaluate.h>
#include <tapeformer/examples/language/loss.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/nn/formats/family.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace tapeformer {
namespace {

TokenFile tokens_of(const LanguageOptions& trained, const std::string& run, const std::string& part) {
  const std::string folder = trained.tokens.empty() ? run + "/tokens" : trained.tokens;
  if (!std::filesystem::exists(folder))
    throw DataError(folder, 0, "no longer exists; pass a text with --corpus");
  const LanguageData data = open_language_data(trained, RunFolder(run));
  if (RunFolder(run).config().value("data_fingerprint", Json()) != fingerprint(data))
    throw DataError(folder, 0,
                    "has changed since the run was trained; restore it, or pass a text with --corpus");
  return part == "train" ? data.train : data.validation;
}

}  // namespace

void EvaluateOptions::add_to(const Command& command) {
  command.required("--run", run, "a run folder, or a checkpoint folder of transformers: " + family_titles());
  command.option("--part", part, "part of the run's text: validation or train")
      .one_of({"validation", "train"});
  command.option("--corpus", corpus, "measure these UTF-8 files, or folders of them, instead (as train does)")
      .not_empty();
  add_average_option(command, average);
  command.option("--batch", batch, "rows computed at a time; 0 as in training", kNotNegative);
  command.option("--context", context, "tokens per row; 0 as in training, or the model's up to 1024",
                 kNotNegative);
  command.option("--validation-batches", validation_batches,
                 "random batches of the estimate; 0 as in training", kNotNegative);
  command.option("--seed", seed, "seed of the random batches; without it, the run's");
  command.option("--tokenizer-model", tokenizer_model, "a tokenizer to use instead of the folder's own")
      .not_empty();
  command.flag("--summary", summary,
               "print the model's configuration, parameters and costs, and measure nothing");
  command.flag("--json", json, "print JSON, with every digit");
  compute.add_to(command);
}

void EvaluateOptions::refuse_ignored(const Command& command) const {
  if (!corpus.empty()) command.refuse({"--part"}, "with --corpus");
  if (summary)
    command.refuse_all_but({"--run", "--summary", "--average", "--tokenizer-model", "--device", "--threads"},
                           "with --summary");
}

int evaluate(const EvaluateOptions& options) {
  remember_interrupts();
  say_at_interrupt(kStopping);
  const Compute compute = options.compute.chosen();
  use_threads(static_cast<int>(compute.threads));
  LanguageRun run = LanguageRun::load(options.run, options.average, options.tokenizer_model);
  compute.apply(run.model);
  if (options.summary) {
    print("{}", summary_of(run.model));
    return kExitSuccess;
  }
  const std::optional<LanguageOptions> trained = training_in(options.run);
  if (!trained && options.corpus.empty())
    throw Error(options.run + ": has a model but no text to measure it on; pass one with --corpus");
  if (!options.tokenizer_model.empty() && options.corpus.empty())
    throw Error("--tokenizer-model needs --corpus: the run's own text is stored as tokens");
  const auto chosen = [](Index asked, Index otherwise) { return asked > 0 ? asked : otherwise; };
  const Index batch = chosen(options.batch, trained ? trained->batch : 8);
  const Index most = run.model.config().context;
  const Index context =
      chosen(options.context, trained ? trained->model.context : std::min(most, kMostUnaskedContext));
  if (context > most) throw Error(format("--context {} is more than the model's {}", context, most));
  const Index batches = chosen(options.validation_batches, trained ? trained->validation_batches : 20);
  const HeadLossConfig head{trained ? trained->fused_head : true, trained ? trained->head_chunk : 0};

  Progress progress;
  std::optional<ScratchFolder> scratch;
  const TokenFile tokens = options.corpus.empty()
                               ? tokens_of(*trained, base_of(options.run), options.part)
                               : encode_text(options.corpus, trained ? trained->data.loss_on : "all",
                                             *run.tokenizer, scratch.emplace().file("tokens"), progress);
  const auto check = [&] {
    if (!interrupted()) return;
    progress.clear();
    throw Interrupted("interrupted; nothing was measured");
  };
  const std::uint64_t seed = options.seed.value_or(trained ? trained->training.seed : 1);
  const LanguageMeasure measure(tokens, *run.tokenizer, batch, context, seed, head,
                                trained ? document_end(*trained, *run.tokenizer) : std::nullopt);
  const TextLoss exact = measure.exact(run.model, progress, check);
  const EstimatedLoss estimate = measure.estimate(run.model, batches, progress, check);
  progress.clear();
  if (options.json) {
    Json estimated = estimate.json();
    if (estimate.batches > 1) estimated["standard_error"] = estimate.standard_error;
    print("{}\n", Json({{"tokens", measure.file().size()},
                        {"exact", exact.json()},
                        {"estimated", std::move(estimated)}})
                      .dump(2));
    return kExitSuccess;
  }
  print("tokens     {} in {}\n", measure.file().size(),
        options.corpus.empty() ? "the run's " + options.part + " part" : "the corpus");
  if (!trained && options.context == 0 && context < most) {
    print("rows       of {}; the model takes up to {}: see --context\n", number_of(context, "token"), most);
  }
  if (compute.device.is_cuda()) progress.log(compute.usage_text());
  print("exact      {}\n", exact.to_string());
  print("estimated  {}{} (from {} of {} x {})\n", estimate.to_string(), estimate.error_text(),
        number_of(estimate.batches, "random batch", "random batches"), batch,
        std::min(context, measure.file().size() - 1));
  return kExitSuccess;
}

}  // namespace tapeformer
