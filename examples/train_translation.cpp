#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/metrics.h>
#include <tapeformer/examples/report/report_commands.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/examples/shared/sweep.h>
#include <tapeformer/examples/shared/train_command.h>
#include <tapeformer/examples/train/start.h>
#include <tapeformer/examples/translation/export.h>
#include <tapeformer/examples/translation/heat_map.h>
#include <tapeformer/examples/translation/run.h>
#include <tapeformer/examples/translation/trainer.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

namespace tapeformer {
namespace {

struct TranslateOptions {
  std::string run;
  std::vector<std::string> sentences;
  std::optional<Index> n_best;  ///< without a value, the best alone is printed, as it is
  TranslationHeatMap heat_map;
  SearchOptions search;

  void add_to(const Command& command) {
    command.required("--run", run, "a run folder, or a translation model of transformers or Marian");
    search.add_to(command);
    command.option("SENTENCE", sentences,
                   "sentences to translate, each in quotes; without any, standard input");
    command
        .option("--n-best", n_best,
                "print this many translations of a line, best first: 'LINE ||| TEXT ||| SCORE', with lines "
                "from 0, and the log probability in nats with the length penalty",
                kPositive)
        .excludes(command.find("--sample"));
    heat_map.add_to(command);
  }
  void refuse_ignored(const Command& command) const { search.refuse_ignored(command); }
};

int translate(const TranslateOptions& options) {
  SearchOptions search = options.search;
  search.n_best = options.n_best.value_or(1);
  const TranslationRun run = search.load(options.run, search.compute.chosen());
  const auto& [model, words, config, folder_search] = run;
  const Index batch = search.search_of(run).batch;
  options.heat_map.check(model.config());
  const auto most = words.most_source(model.config().max_length);
  const auto given = static_cast<Index>(options.sentences.size());
  const std::string place = given > 0 ? "sentence " : "standard input:";
  // Somebody may wait for each line of a terminal or a pipe. Of a file several batches are read and sorted.
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file("/dev/stdin", ignored);
  const bool is_awaited = given == 0 && !search.batch && !is_file;
  const auto together = static_cast<std::size_t>(is_awaited ? 1 : 8 * batch);
  int code = kExitSuccess;
  LineReader lines(kStandardInput);
  Index number = 0;
  std::vector<TokenIds> sources;
  Progress progress;
  const auto translate_sources = [&, &words = run.words, &model = run.model] {
    Index line = number - static_cast<Index>(sources.size());
    search.sampling.stream = static_cast<std::uint64_t>(line + 1);  // repeating a sentence draws again
    const std::vector<Hypothesis> found = search.find(run, sources, [&](Index done) {
      if (together > 1) progress.status(format("translated {}", number_of(line + done, "sentence")));
    });
    progress.clear();
    for (std::size_t i = 0; i < sources.size(); ++i, ++line) {
      const auto text_of = [&](const Hypothesis& output) {
        const std::string text = words.target->decode(output.tokens);
        return options.n_best ? format("{} ||| ", line) + text + format(" ||| {:.4f}", output.score) : text;
      };
      std::cout << text_of(found[i]) << "\n";
      for (const Hypothesis& other : found[i].others) std::cout << text_of(other) << "\n";
      if (!std::cout.flush()) throw DataError("standard output", line + 1, "cannot be written");
      if (!sources[i].empty()) options.heat_map.write(model, words, sources[i], found[i].tokens, line + 1);
    }
    sources.clear();
  };
  for (std::string line;;) {
    TokenIds source;
    try {
      if (given > 0 ? number == given : !lines.next(line)) break;
      if (given > 0) line = options.sentences[static_cast<std::size_t>(number)];
      source = source_of_line(words, line);
    } catch (const DataError& error) {
      if (given == 0 && lines.number() == number) {  // no line can be read
        translate_sources();
        throw;
      }
      // One that is not text takes no other with it.
      const std::string where = given > 0 ? format("{}{}: ", place, number + 1) : "";
      std::fprintf(stderr, "%s%s; its translation is empty\n", where.c_str(), error.what());
      code = kExitBadInput;
    }
    ++number;
    if (source.size() > most) {
      std::fprintf(stderr, "note: %s%lld: has %zu tokens, and only the first %zu are translated\n",
                   place.c_str(), static_cast<long long>(number), source.size(), most);
      source.resize(most);
    }
    sources.push_back(std::move(source));
    if (sources.size() == together) translate_sources();
  }
  translate_sources();
  return code;
}

struct EvaluateOptions {
  std::string run, part = "test", output;
  PairFiles text;
  bool swap = false, summary = false, json = false;
  SearchOptions search;

  void add_to(const Command& command) {
    command.required("--run", run, "a run folder, or a translation model of transformers or Marian");
    command.flag("--summary", summary,
                 "print the model's configuration, parameters and costs, and measure nothing");
    command.flag("--json", json, "print JSON, with every digit");
    command.option("--part", part, "part of the run's text: test or validation")
        .one_of({"test", "validation"});
    command.option("--pairs", text.pairs, "measure these tab-separated pairs instead; - for standard input")
        .not_empty();
    command.option("--source", text.source, "measure these sentences, one per line (with --target)")
        .not_empty();
    command.option("--target", text.target, "their translations, one per line (with --source)").not_empty();
    command.flag("--swap", swap, "the second column of --pairs is the source");
    command.option("--output", output, "write the translations here, one per line").not_empty();
    search.add_to(command);
  }
  /// Throws: Error that names contradicting options, or a given option without effect
  void refuse_ignored(const Command& command) const {
    search.refuse_ignored(command);
    text.check();
    if (!text.empty()) command.refuse({"--part"}, "with a text of your own");
    if (text.pairs.empty()) command.refuse({"--swap"}, "without --pairs");
    if (summary)
      command.refuse_all_but({"--run", "--summary", "--average", "--device", "--threads"}, "with --summary");
  }
};

/// The held-out part of the run's corpus.
std::vector<TextPair> held_out_pairs(const TranslationOptions& trained, const Json& config,
                                     const std::string& part) {
  std::string report;
  CorpusSplit corpus = load_corpus(trained, report);
  const auto trained_on = config.find("data_fingerprint");
  if (trained_on == config.end() || *trained_on != fingerprint(corpus)) {
    const bool own = !trained.validation.empty();
    throw DataError(trained.built_in() ? "the built-in corpus" : trained.text.name(), 0,
                    std::string("has changed since the run was trained, ") +
                        (own ? "or a validation or test file has" : "and with it the held-out pairs") +
                        "; restore it, or pass --pairs, or --source and --target");
  }
  std::vector<TextPair> pairs = part == "test" ? corpus.test : corpus.validation;
  if (pairs.empty()) {
    throw Error("the run had no " + part +
                " files; try --part validation, or pass --pairs, or --source and --target");
  }
  return pairs;
}

/// The loss on the pairs and how many were left out, a line each, and in `scores`.
std::string loss_text(TranslationRun& run, const std::vector<TextPair>& pairs,
                      const TranslationOptions& trained, Progress& progress, Json& scores) {
  BatchingConfig batching;
  batching.token_budget = trained.batch_tokens;
  batching.max_tokens = trained.model.max_length;
  batching.shuffle = false;
  batching.frame = run.words.frame;
  try {
    TranslationBatches batches(encode(run.words, pairs), batching);
    const TextLoss loss = validation_loss(run.model, batches, *run.words.target, progress);
    scores["left_out"] = batches.dropped() + batches.dropped_empty();
    scores.update(loss.json());
    const std::string left_out = left_out_text(batches, batching);
    return (left_out.empty() ? "" : "left out     from the loss: " + left_out + "\n") + "loss         " +
           loss.to_string() + "\n";
  } catch (const DataError& error) {
    return std::string("loss         none: ") + error.what() + "\n";
  }
}

int evaluate(const EvaluateOptions& options) {
  const SearchOptions& search = options.search;
  const Compute compute = search.compute.chosen();
  if (!options.output.empty()) check_writable(options.output);
  TranslationRun run = search.load(options.run, compute);
  if (options.summary) {
    print("{}", summary_of(run.model));
    return kExitSuccess;
  }
  const TranslationOptions trained = translation_training_in(options.run);
  if (run.config.is_null() && options.text.empty())
    throw Error(options.run +
                ": has a model but no text to measure it on; pass --pairs, or --source and --target");
  Progress progress;
  const std::vector<TextPair> pairs = options.text.empty() ? held_out_pairs(trained, run.config, options.part)
                                                           : options.text.read(options.swap);
  std::vector<TokenIds> sources;
  std::vector<std::string> hypotheses, references;
  Index cut = 0, empty = 0;
  const auto most = run.words.most_source(run.model.config().max_length);
  for (const TextPair& pair : pairs) {
    references.push_back(pair.target);
    sources.push_back(run.words.encode_source(pair.source));
    empty += sources.back().empty() ? 1 : 0;
    cut += sources.back().size() > most ? 1 : 0;
    sources.back().resize(std::min(sources.back().size(), most));
  }
  const double begun = now_seconds();
  const auto show = [&](Index done) {
    const double seconds = now_seconds() - begun;
    const double rate = static_cast<double>(done) / seconds;
    const double left = static_cast<double>(pairs.size()) - static_cast<double>(done);
    progress.status(format("translated {}/{}, {} sentences/s, {} left", done, pairs.size(), count_text(rate),
                           duration_text(left / rate)));
  };
  for (const Hypothesis& found : search.find(run, sources, show))
    hypotheses.push_back(run.words.target->decode(found.tokens));
  progress.clear();
  if (!options.output.empty()) {
    std::string text;
    for (const std::string& line : hypotheses) text += line + "\n";
    write_atomically(options.output, text);
  }
  Json scores = {{"sentences", pairs.size()}, {"cut", cut}, {"no_tokens", empty}, {"loss", nullptr}};
  if (options.text.empty()) scores["part"] = options.part;
  const std::string loss = loss_text(run, pairs, trained, progress, scores);
  progress.clear();
  if (compute.device.is_cuda()) progress.log(compute.usage_text());
  const BleuScore bleu = corpus_bleu(hypotheses, references);
  const double exact = exact_match(hypotheses, references), chrf = corpus_chrf(hypotheses, references);
  scores.update({{"exact_match", exact}, {"bleu", bleu.score}, {"chrf", chrf}});
  try {
    if (options.text.empty() && search.average == 0)
      RunFolder(options.run).write(kEvaluationFile, scores.dump() + "\n");
  } catch (const Error& error) {
    std::fprintf(stderr, "note: compare will not know these scores: %s\n", error.what());
  }
  if (options.json) {
    scores["bleu_signature"] = bleu_signature();
    print("{}\n", scores.dump(2));
    return kExitSuccess;
  }
  print("sentences    {}\n", pairs.size());
  if (cut > 0) print("cut          {} to {}\n", number_of(cut, "source"), number_of(most, "token"));
  if (empty > 0)
    print("no tokens    in {}: nothing is written for {}\n", number_of(empty, "source"),
          empty == 1 ? "it" : "them");
  print("{}exact match  {:.2f} %\n{}\nchrF2        {:.2f}\n", loss, exact, bleu.text(), chrf);
  return kExitSuccess;
}

int start(const RunFolder& folder, const TrainingControl& control, TranslationOptions options,
          const Command& command) {
  if (!options.from.empty()) {
    take_fine_tuned(options, translation_training_in(options.from), command);
  }
  options.training.adapt(command);
  options.check();
  options.refuse_ignored(command);
  const std::string chosen = options.from.empty() ? choose_by_size(options, command) : "";
  make_absolute(fields_of(options));
  return start_training(folder, control, [&](const Json*, Progress& progress) {
    if (!chosen.empty()) progress.log("for so few pairs: " + chosen);
    return std::make_unique<TranslationTask>(options, progress);
  });
}

int resume(const RunFolder& folder, const TrainingControl& control) {
  return resume_training(folder, control, [&](const Json* checkpoint, Progress& progress) {
    return std::make_unique<TranslationTask>(folder, *checkpoint, progress);
  });
}

int run(int argc, char** argv) {
  CommandLine line(
      "Trains a transformer that translates, and translates with it.\n"
      "  train_translation train --run runs/demo                      the built-in English to French corpus\n"
      "  train_translation train --run runs/fr --pairs fra-eng.tsv --max-words 10\n"
      "  train_translation train --run runs/tuned --from runs/fr --pairs letters.tsv\n"
      "  train_translation train --run runs/de --source train.en --target train.de \\\n"
      "    --validation-source valid.en --validation-target valid.de\n"
      "  train_translation translate --run runs/demo 'She sees the cat.'\n"
      "  train_translation evaluate --run runs/demo\n"
      "  train_translation train --run runs/marian --preset translation-marian\n"
      "  train_translation export --run runs/marian --output marian");
  line.version(std::string("tapeformer ") + kVersion);

  TranslationOptions translation(preset_named_in(argc, argv));
  TrainCommand train(
      line, argc, argv, translation.training,
      [&](const RunFolder& folder, const TrainingControl& control) {
        return start(folder, control, translation, train.command());
      },
      resume);
  translation.add_to(train.command());
  train.command().footer(presets_text(translation_presets()));

  add_command<TranslateOptions>(
      line, "translate",
      "translate sentences, or standard input, to standard output, one per line; a line of more tokens than "
      "the model takes (--max-length) is cut, with a note",
      translate);
  add_command<EvaluateOptions>(line, "evaluate", "measure the held-out sentences, or others", evaluate);
  add_command<TranslationExportOptions>(line, "export", "write a trained model for transformers or Marian",
                                        export_translation);
  add_report_commands(line);
  SweepCommand sweep(line, argc, argv, train);
  line.command("fields", "print the fields of config.json, as Markdown", [](const Command&) {
    const EncoderDecoderConfig model;
    print("{}", fields_document("train_translation", fields_of(model), fields_of(TranslationOptions())));
    return kExitSuccess;
  });

  return line.read(sweep.own_words(), argv) ? line.execute() : kExitSuccess;
}

}  // namespace
}  // namespace tapeformer

int main(int argc, char** argv) {
  return tapeformer::run_program("train_translation", [&] { return tapeformer::run(argc, argv); });
}
