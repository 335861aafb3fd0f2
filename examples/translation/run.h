#pragma once

#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/examples/translation/data.h>
#include <tapeformer/nn/generation/generate.h>

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

class Command;

/// A trained run, or another program's folder, for `translate` and `evaluate`.
struct TranslationRun {
  EncoderDecoder model;
  Vocabularies words;
  Json config;          ///< config.json of a run; null for a folder of another program
  SearchConfig search;  ///< the folder's settings of the search, with the ids of the vocabularies

  /// Loads a run folder, with the mean of its last `average` kept weights unless that is 0, or another
  /// program's folder. Values of `sentences` that are not empty replace the folder's own.
  /// Throws:  CheckpointError, DataError; Error if the folder keeps fewer weights than `average`
  static TranslationRun load(const std::string& folder, Index average = 0,
                             const SentenceOptions& sentences = {});
};

/// The choice of weights, and the settings of the search.
struct SearchOptions {
  std::optional<Index> beam, max_tokens;
  std::optional<Index> batch;  ///< sentences translated side by side
  std::optional<double> length_penalty;
  std::string early_stopping;  ///< a name of EarlyStopping; empty for the folder's
  Index n_best = 1;
  SamplingConfig sampling;
  bool draw = false;
  Index average = 0;
  SentenceOptions sentences;
  std::string cache = "contiguous";
  ComputeOptions compute;

  void add_to(const Command& command);
  /// Throws: Error naming an option that `command` was given and that would change nothing
  void refuse_ignored(const Command& command) const;
  /// Loads the run in a folder, on the device of `compute`. Throws: as TranslationRun::load
  TranslationRun load(const std::string& folder, const Compute& compute) const;
  /// The search of the run's folder, changed by the given options.
  /// Throws: Error if there are more outputs than hypotheses
  SearchConfig search_of(const TranslationRun& run) const;
  std::vector<Hypothesis> find(const TranslationRun& run, const std::vector<TokenIds>& sources,
                               const std::function<void(Index done)>& progress = {}) const;
};

/// The options of a run; for another program's folder only the model's.
/// Throws: CheckpointError with the reason why `folder` is neither
TranslationOptions translation_training_in(const std::string& folder);

}  // namespace tapeformer
