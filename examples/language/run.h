#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/examples/language/options.h>
#include <tapeformer/nn/transformer/decoder_only.h>

#include <memory>
#include <optional>
#include <string>

namespace tapeformer {

/// A trained model and its tokenizer, in evaluation mode.
struct LanguageRun {
  DecoderOnly model;
  std::shared_ptr<const Tokenizer> tokenizer;

  /// Loads a run folder or a Hugging Face folder, with the mean of the run's last `average` kept weights
  /// unless that is 0. The tokenizer is the folder's, unless `tokenizer_path` names another.
  /// Throws: CheckpointError, DataError; Error if the folder keeps fewer weights than `average`
  static LanguageRun load(const std::string& folder, Index average = 0,
                          const std::string& tokenizer_path = {});
};

/// The folder itself; for one of PEFT's, the folder of the adapters' base model. Throws: CheckpointError
std::string base_of(const std::string& folder);

/// The model of a run folder or Hugging Face folder, without its weights. Throws: CheckpointError, DataError
DecoderOnlyConfig model_config_in(const std::string& folder);

/// The options of a run; none for another program's model. Throws: CheckpointError, DataError
std::optional<LanguageOptions> training_in(const std::string& folder);

/// The initial model of a new run: random, or with the weights in the folder options.from.
/// Throws: CheckpointError, DataError, Error
DecoderOnly initial_model(const LanguageOptions& options, Index vocabulary);

}  // namespace tapeformer
