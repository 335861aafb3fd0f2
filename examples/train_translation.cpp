#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/number_of.h>
#include <tapeformer/data/metrics.h>
#include <tapeformer/data/toy_grammar.h>
#include <tapeformer/examples/command_line.h>
#include <tapeformer/examples/program.h>
#include <tapeformer/examples/translation_heat_map.h>
#include <tapeformer/examples/translation_trainer.h>
#include <tapeformer/nn/atomic_file.h>
#include <tapeformer/nn/generate.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

namespace tapeformer {
namespace {

/// How outputs are found.
struct SearchOptions {
  SearchConfig search;
  SamplingConfig sampling;
  bool draw = false;
  std::string cache = "contiguous";
  ComputeOptions compute;

  SearchOptions() { search.beam = 5; }
  void add_to(const Command& command) {
    command.number("--beam", search.beam, "hypotheses kept; 1 is greedy search", kPositive).show_default();
    command.number("--length-penalty", search.length_penalty, "above 0 favours longer translations")
        .show_default();
    command
        .number("--max-tokens", search.max_tokens, "longest translation; 0 for twice the source and ten",
                kNotNegative)
        .show_default();
    command.option("--cache", cache, "keys and values of earlier tokens: contiguous, paged, or none are kept")
        .one_of({"contiguous", "paged", "none"})
        .show_default();
    const CommandOption sample_flag = command.flag("--sample", draw, "draw every token instead of searching");
    const auto of_samples = [&](const char* name, auto& value, const char* help, const NumberRule& rule) {
      command.number(name, value, help, rule).needs(sample_flag).show_default();
    };
    of_samples("--temperature", sampling.temperature, "below 1 favours likely tokens", kPositive);
    of_samples("--top-k", sampling.top_k, "draw among so many likeliest tokens; 0 for all", kNotNegative);
    of_samples("--top-p", sampling.top_p, "draw among the likeliest that have this share together",
               kPositiveShare);
    of_samples("--seed", sampling.seed, "of what is drawn", kAnyNumber);
    compute.add_to(command);
  }
  std::vector<Hypothesis> find(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                               const std::function<void(Index done)>& progress = {}) const {
    SearchConfig config = search;
    config.progress = progress;
    config.graphs = compute.graphs;
    config.cache.reset();
    if (cache != "none") config.cache.emplace().kind = cache_kind(cache);
    return draw ? sample(model, sources, sampling, config) : beam_search(model, sources, config);
  }
};

/// A trained run: what `translate` and `evaluate` need.
struct Trained {
  EncoderDecoder model;
  Vocabularies words;
  Json config;

  /// Throws: CheckpointError, DataError
  static Trained load(const std::string& folder, const Compute& compute) {
    Json config = RunFolder(folder).config();
    try {
      Trained trained{EncoderDecoder::load(folder), Vocabularies::load(folder, config), config};
      compute.apply(trained.model);
      return trained;
    } catch (const Json::exception& error) {
      throw CheckpointError(folder + "/config.json: is not of this program: " + error.what());
    }
  }
};

int translate(const std::string& folder, SearchOptions search, const TranslationHeatMap& heat_map) {
  const auto [model, words, config] = Trained::load(folder, search.compute.chosen());
  heat_map.check(model.config());
  Index number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    search.sampling.stream = static_cast<std::uint64_t>(number);  // the same sentence again: another draw
    const TokenIds source = checked_source(*words.source, line, number, model.config().max_length);
    const TokenIds found = source.empty() ? source : search.find(model, {source}).front().tokens;
    std::cout << words.target->decode(found) << std::endl;  // a line each, at once: somebody may be waiting
    if (!std::cout) throw DataError("standard output", number, "cannot be written");
    if (!source.empty()) heat_map.write(model, words, source, found, number);
  }
  return kExitSuccess;
}

struct EvaluateOptions {
  std::string run, part = "test", pairs, output;
  bool swap = false;
};

/// The part of the training's corpus that it did not train on.
std::vector<TextPair> held_out_pairs(const TranslationOptions& trained, const Json& config,
                                     const std::string& part) {
  std::string report;
  CorpusSplit corpus = load_corpus(trained, report);
  if (fingerprint(corpus) != config.at("data_fingerprint").get<std::uint64_t>()) {
    throw DataError(
        trained.pairs.empty() ? trained.source : trained.pairs, 0,
        "has changed since the training, and with it what was held out; restore it, or name --pairs");
  }
  return part == "test" ? corpus.test : corpus.validation;
}

int evaluate(const EvaluateOptions& options, const SearchOptions& search) {
  const Compute compute = search.compute.chosen();
  Trained run = Trained::load(options.run, compute);
  const TranslationOptions trained = trained_options(RunFolder(options.run));
  Progress progress;
  const std::vector<TextPair> pairs = options.pairs.empty()
                                          ? held_out_pairs(trained, run.config, options.part)
                                          : read_tab_separated(options.pairs, options.swap);
  std::vector<TokenIds> sources;
  Index cut = 0;
  const auto most = static_cast<std::size_t>(run.model.config().max_length - 1);
  for (const TextPair& pair : pairs) {
    sources.push_back(run.words.source->encode(pair.source));
    cut += sources.back().size() > most ? 1 : 0;
    sources.back().resize(std::min(sources.back().size(), most));
  }
  const double begun = now_seconds();
  const auto show = [&](Index done) {
    const double seconds = now_seconds() - begun;
    const double rate = static_cast<double>(done) / seconds;
    progress.show("translated " + std::to_string(done) + "/" + std::to_string(pairs.size()) + ", " +
                  count_text(rate) + " sentences/s, " +
                  duration_text((static_cast<double>(pairs.size()) - static_cast<double>(done)) / rate) +
                  " left");
  };
  std::vector<std::string> hypotheses;
  for (const Hypothesis& found : search.find(run.model, sources, show)) {
    hypotheses.push_back(run.words.target->decode(found.tokens));
  }
  progress.clear();
  const std::vector<std::string> references = targets_of(pairs);
  if (!options.output.empty()) {
    std::string text;
    for (const std::string& line : hypotheses) text += line + "\n";
    write_atomically(options.output, text);
  }
  BatchingConfig batching;
  batching.token_budget = trained.batch_tokens;
  batching.max_tokens = trained.max_length;
  batching.shuffle = false;
  TranslationBatches batches(encode(run.words, pairs), batching);
  const double loss = validation_loss(run.model, batches, progress);
  progress.clear();
  if (compute.device.is_cuda()) progress.keep(compute.usage_text());
  std::printf("sentences    %zu\n", pairs.size());
  if (cut > 0) {
    std::printf("cut          %s to %s\n", number_of(cut, "source").c_str(),
                number_of(most, "token").c_str());
  }
  if (batches.dropped() > 0) {
    std::printf("left out     %s of the loss: too long\n", number_of(batches.dropped(), "pair").c_str());
  }
  std::printf("loss         %.4f nats a token, perplexity %.3f\n", loss, std::exp(loss));
  std::printf("exact match  %.2f %%\n", exact_match(hypotheses, references));
  std::printf("%s\n", corpus_bleu(hypotheses, references).text().c_str());
  std::printf("chrF2        %.2f\n", corpus_chrf(hypotheses, references));
  if (options.pairs.empty() && trained.built_in()) {
    const ToyGrammar grammar;
    std::vector<std::string> word_by_word;
    for (const TextPair& pair : pairs) word_by_word.push_back(grammar.word_by_word(pair.source));
    std::printf("for comparison, a perfect word-by-word dictionary: exact match %.2f %%, BLEU %.2f\n",
                exact_match(word_by_word, references), corpus_bleu(word_by_word, references).score);
  }
  return kExitSuccess;
}

struct TrainOptions {
  std::string run;
  bool resume = false;
  TranslationOptions model;
  TrainingControl control;
};

int train(const TrainOptions& options, const Command& command) {
  remember_interrupts();
  const RunLock lock(options.run);
  say_at_interrupt(kStopping);
  const RunFolder folder(options.run);
  if (!options.resume) {
    TranslationOptions model = options.model;
    if (!model.from.empty()) take_fine_tuned(model, trained_options(RunFolder(model.from)), command);
    model.make_paths_absolute();
    return start_training(folder, options.control, [&](const Json*, Progress& progress) {
      return std::make_unique<TranslationTask>(model, progress);
    });
  }
  TrainingControl control = options.control;
  control.steps =
      steps_on_resuming(command, {"Data", "Vocabulary", "Model", "Training"}, options.model.training);
  return resume_training(folder, control, [&](const Json* checkpoint, Progress& progress) {
    return std::make_unique<TranslationTask>(folder, *checkpoint, progress);
  });
}

int run(int argc, char** argv) {
  const CommandLine line(
      "Trains a transformer that translates, and translates with it.\n"
      "  train_translation train --run runs/demo                      the built-in English to French corpus\n"
      "  train_translation train --run runs/fr --pairs fra-eng.tsv --max-words 10\n"
      "  train_translation train --run runs/tuned --from runs/fr --pairs letters.tsv\n"
      "  echo 'She sees the cat.' | train_translation translate --run runs/demo\n"
      "  train_translation evaluate --run runs/demo");
  line.version("tapeformer 0.1.0");

  TrainOptions train_options;
  const Command train_command =
      line.command("train", "train a model in a run folder; Ctrl-C saves and stops");
  train_command.option("--run", train_options.run, "the run folder").required();
  train_command.flag("--resume", train_options.resume, "go on from the folder's checkpoint");
  TrainingControl& control = train_options.control;
  train_command.number("--max-minutes", control.max_minutes, "stop after so long and save; 0 for no limit",
                       kNotNegative);
  control.compute.add_to(train_command);
  train_options.model.add_to(train_command);

  std::string translate_run;
  SearchOptions search;
  const Command translate_command =
      line.command("translate", "translate standard input to standard output, a line each");
  translate_command.option("--run", translate_run, "the run folder").required();
  search.add_to(translate_command);
  TranslationHeatMap heat_map;
  heat_map.add_to(translate_command);

  EvaluateOptions evaluate_options;
  const Command evaluate_command = line.command("evaluate", "measure the held-out sentences, or others");
  evaluate_command.option("--run", evaluate_options.run, "the run folder").required();
  evaluate_command.option("--part", evaluate_options.part, "test or validation")
      .one_of({"test", "validation"})
      .show_default();
  evaluate_command.option("--pairs", evaluate_options.pairs, "measure these tab-separated pairs instead");
  evaluate_command.flag("--swap", evaluate_options.swap, "the second column of --pairs is the source");
  evaluate_command.option("--output", evaluate_options.output, "write the translations here, a line each");
  search.add_to(evaluate_command);

  if (!line.read(argc, argv)) return kExitSuccess;
  if (train_command.chosen()) return train(train_options, train_command);
  if (translate_command.chosen()) return translate(translate_run, search, heat_map);
  return evaluate(evaluate_options, search);
}

}  // namespace
}  // namespace tapeformer

int main(int argc, char** argv) {
  return tapeformer::run_program("train_translation", [&] { return tapeformer::run(argc, argv); });
}
