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

/// A trained run, or a folder of another program, as `translate` and `evaluate` need it.
struct TranslationRun {
  EncoderDecoder model;
  Vocabularies words;
  Json config;          ///< config.json of a run; null for a folder of another program
  SearchConfig search;  ///< the ids of the vocabularies, and how the folder wants outputs to be searched for

  /// Loads a run folder of this program, with the mean of the last `average` weights that it kept unless that
  /// is 0, or a folder of another program; `sentences` in place of its own.
  /// Throws:  CheckpointError, DataError
  static TranslationRun load(const std::string& folder, Index average = 0,
                             const SentenceOptions& sentences = {});
};

/// Which weights are used, and how outputs are searched for.
struct SearchOptions {
  std::optional<Index> beam, max_tokens;
  std::optional<Index> batch;  ///< sentences searched for side by side
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
  /// Throws: Error that names a given option without effect
  void refuse_ignored(const Command& command) const;
  /// The run in a folder, for `compute`. Throws: as TranslationRun::load
  TranslationRun load(const std::string& folder, const Compute& compute) const;
  /// The search of the run's folder, with the options that were given.
  /// Throws: Error if there are more outputs to find than hypotheses
  SearchConfig search_of(const TranslationRun& run) const;
  std::vector<Hypothesis> find(const TranslationRun& run, const std::vector<TokenIds>& sources,
                               const std::function<void(Index done)>& progress = {}) const;
};

/// The options of the run's training; of a folder of another program, the model alone.
/// Throws: CheckpointError that says why `folder` is neither
TranslationOptions translation_training_in(const std::string& folder);

}  // namespace tapeformer
