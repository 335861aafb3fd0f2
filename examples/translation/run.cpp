#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/translation/run.h>

namespace tapeformer {

void SearchOptions::add_to(const Command& command) {
  const CommandOption sample_flag = command.flag("--sample", draw, "draw every token instead of searching");
  command.option("--beam", search.beam, "hypotheses kept; 1 is greedy search", kPositive)
      .excludes(sample_flag);
  command
      .option("--length-penalty", search.length_penalty,
              "above 0 favours longer translations, below 0 shorter ones")
      .excludes(sample_flag);
  command.option("--max-tokens", search.max_tokens, "longest translation; 0 for twice the source and ten",
                 kNotNegative);
  command.option("--cache", cache, "keys and values of earlier tokens: contiguous, paged, or none are kept")
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
  compute.add_to(command);
}

void SearchOptions::refuse_ignored(const Command& command) const {
  if (search.beam == 1) command.refuse({"--length-penalty"}, "with --beam 1");
}

std::vector<Hypothesis> SearchOptions::find(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                                            const std::function<void(Index done)>& progress) const {
  SearchConfig config = search;
  config.progress = progress;
  config.graphs = compute.graphs;
  config.cache.reset();
  if (cache != "none") config.cache.emplace().kind = kind_named<CacheKind>(cache);
  return draw ? sample(model, sources, sampling, config) : beam_search(model, sources, config);
}

void check_translation_run(const std::string& folder) {
  check_run_folder(folder, "tokenizer", "train_language_model",
                   "a folder that train_translation train --run made");
  check_trained(folder);
}

TranslationRun TranslationRun::load(const std::string& folder, Index average, const Compute& compute) {
  use_threads(static_cast<int>(compute.threads));
  check_translation_run(folder);
  const RunFolder run(folder);
  Json config = run.config();
  try {
    TranslationRun trained{EncoderDecoder::load(folder), Vocabularies::load(folder, config), config};
    if (average > 0) run.load_average(average, trained.model);
    compute.apply(trained.model);
    return trained;
  } catch (const Json::exception& error) {
    throw CheckpointError(folder + "/config.json: is not of this program: " + reason_of(error));
  }
}

}  // namespace tapeformer
