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

/// Which weights are used, and how outputs are searched for.
struct SearchOptions {
  SearchConfig search;
  SamplingConfig sampling;
  bool draw = false;
  Index average = 0;
  std::string cache = "contiguous";
  ComputeOptions compute;

  SearchOptions() { search.beam = 5; }
  void add_to(const Command& command);
  /// Throws: Error that names a given option without effect
  void refuse_ignored(const Command& command) const;
  std::vector<Hypothesis> find(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                               const std::function<void(Index done)>& progress = {}) const;
};

/// Throws: CheckpointError that says why `folder` is not a trained run
void check_translation_run(const std::string& folder);

/// A trained run as `translate` and `evaluate` need it.
struct TranslationRun {
  EncoderDecoder model;
  Vocabularies words;
  Json config;

  /// Throws: CheckpointError, DataError
  static TranslationRun load(const std::string& folder, Index average, const Compute& compute);
};

}  // namespace tapeformer
