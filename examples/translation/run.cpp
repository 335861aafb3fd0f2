#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/data/tokenizers/marian.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/translation/generation_config.h>
#include <tapeformer/examples/translation/marian_folder.h>
#include <tapeformer/examples/translation/run.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <filesystem>

namespace tapeformer {
namespace {

EncoderDecoderConfig transformers_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return naming(path,
                [&] { return hugging_face_config<EncoderDecoderConfig>(read_file<CheckpointError>(path)); });
}

TranslationRun load_model(const std::string& folder, const Vocabularies& words) {
  const SearchConfig search = read_generation_config(folder, words);
  return {load_hugging_face<EncoderDecoder>(folder), words, {}, search};
}

TranslationRun load_marian_mt(const std::string& folder, const SentenceOptions& sentences) {
  const auto [source, target] = load_marian_tokenizers(folder, decoder_start_in(folder));
  return load_model(folder, {source, target, sentences});
}

TranslationRun load_transformers(const std::string& folder, const SentenceOptions& sentences) {
  const auto shared = load_transformers_tokenizer(folder);
  return load_model(folder, {shared, shared, sentences});
}

/// A kind of folder of another program, with its tokenizers.
struct ForeignFolder {
  const char* tokenizer;
  EncoderDecoderConfig (*config)(const std::string& folder);
  TranslationRun (*load)(const std::string& folder, const SentenceOptions& sentences);
};

/// The kind of a folder; nullptr for a run. Throws: CheckpointError with the reason if it is neither
const ForeignFolder* foreign_folder(const std::string& folder) {
  static const ForeignFolder marian{"marian", marian_folder_config, load_marian_folder},
      marian_mt{"marian", transformers_config, load_marian_mt},
      others{"transformers", transformers_config, load_transformers};
  if (is_marian_folder(folder)) return &marian;
  check_run_folder(
      folder, "tokenizer", "train_language_model",
      "a folder that train_translation train --run made, one of transformers, or one of Marian with its "
      "decoder.yml");
  if (!is_hugging_face(folder)) return nullptr;
  return std::filesystem::exists(folder + "/source.spm") ? &marian_mt : &others;
}

}  // namespace

void SearchOptions::add_to(const Command& command) {
  const CommandOption sample_flag = command.flag("--sample", draw, "draw every token instead of searching");
  command
      .option("--beam", beam,
              "hypotheses kept; 1 is greedy search; without it, as generation_config.json has it, or 5",
              kPositiveSize)
      .excludes(sample_flag);
  command
      .option("--length-penalty", length_penalty,
              "above 0 favours longer translations, below 0 shorter ones; without it, as "
              "generation_config.json has it, or 1")
      .excludes(sample_flag);
  command
      .option(
          "--early-stopping", early_stopping,
          "search as `generate` of transformers does, where the score is log p / length^penalty: stop once "
          "--beam translations are found (true), or when the best hypothesis is no better at its present "
          "length (false), or at any length (never)")
      .one_of(all_names(kNames<EarlyStopping>))
      .excludes(sample_flag);
  command.option("--max-tokens", max_tokens,
                 "longest translation, in tokens; 0 for twice the source plus ten; without it, as "
                 "generation_config.json has it, or 0",
                 kNotNegative);
  command.option("--batch", batch, "sentences translated side by side; 64 without it", kPositiveSize);
  command
      .option("--cache", cache, "how keys and values of earlier tokens are kept: contiguous, paged or none")
      .one_of({"contiguous", "paged", "none"});
  const auto of_samples = [&](const char* name, auto& value, const char* help, const NumberRule& rule) {
    command.option(name, value, help, rule).needs(sample_flag);
  };
  of_samples("--temperature", sampling.temperature, "below 1 favours likely tokens", kPositive);
  of_samples("--top-k", sampling.top_k, "draw among this many likeliest tokens; 0 for all", kNotNegative);
  of_samples("--top-p", sampling.top_p, "draw among the likeliest tokens that together have this probability",
             kPositiveShare);
  of_samples("--seed", sampling.seed, "seed of the random draws", kAnyNumber);
  add_average_option(command, average);
  add_options(command, fields_of(sentences));
  compute.add_to(command);
}

void SearchOptions::refuse_ignored(const Command& command) const {
  if (beam == 1) command.refuse({"--length-penalty", "--early-stopping"}, "with --beam 1");
}

TranslationRun SearchOptions::load(const std::string& folder, const Compute& chosen) const {
  use_threads(static_cast<int>(chosen.threads));
  TranslationRun run = TranslationRun::load(folder, average, sentences);
  chosen.apply(run.model);
  return run;
}

SearchConfig SearchOptions::search_of(const TranslationRun& run) const {
  SearchConfig config = run.search;
  config.beam = beam.value_or(config.beam);
  config.length_penalty = length_penalty.value_or(config.length_penalty);
  config.max_tokens = max_tokens.value_or(config.max_tokens);
  config.batch = batch.value_or(config.batch);
  config.n_best = n_best;
  if (n_best > config.beam) {
    throw Error(
        format("--n-best must be at most --beam; got {} and {}; try --beam {}", n_best, config.beam, n_best));
  }
  if (!early_stopping.empty()) {
    if (!config.transformers) config.transformers.emplace();
    config.transformers->early_stopping = kind_named<EarlyStopping>(early_stopping);
  }
  return config;
}

std::vector<Hypothesis> SearchOptions::find(const TranslationRun& run, const std::vector<TokenIds>& sources,
                                            const std::function<void(Index done)>& progress) const {
  SearchConfig config = search_of(run);
  config.progress = progress;
  config.graphs = compute.graphs;
  config.cache.reset();
  if (cache != "none") config.cache.emplace().kind = kind_named<CacheKind>(cache);
  return draw ? sample(run.model, sources, sampling, config) : beam_search(run.model, sources, config);
}

TranslationOptions translation_training_in(const std::string& folder) {
  const ForeignFolder* const foreign = foreign_folder(folder);
  if (!foreign) return options_of<TranslationOptions>(RunFolder(folder));
  TranslationOptions options;
  options.model = foreign->config(folder);
  options.tokenizer = foreign->tokenizer;
  options.vocabulary = options.model.target_vocabulary;
  return options;
}

TranslationRun TranslationRun::load(const std::string& folder, Index average,
                                    const SentenceOptions& sentences) {
  if (const ForeignFolder* const foreign = foreign_folder(folder)) {
    if (average > 0) throw Error("--average needs a run folder; " + folder + " keeps one set of weights");
    return foreign->load(folder, sentences);
  }
  const RunFolder run(folder);
  check_trained(folder);
  const Json config = run.config();
  try {
    TranslationRun trained{
        EncoderDecoder::load(folder), Vocabularies::load(folder, config, sentences), config, {}};
    trained.search.beam = 5;
    trained.words.set_frame(trained.search);
    if (average > 0) run.load_average(average, trained.model);
    trained.model = without_adapters(std::move(trained.model));
    return trained;
  } catch (const Json::exception& error) {
    throw CheckpointError(folder + "/config.json: was not written by this program: " + reason_of(error));
  }
}

}  // namespace tapeformer
