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

  /// Loads a run folder of this program or a Hugging Face folder. `average` takes the mean of the last that
  /// many weights that the run kept, unless it is 0. The tokenizer is the folder's, unless `tokenizer_path`
  /// names another.
  /// Throws: CheckpointError, DataError
  static LanguageRun load(const std::string& folder, Index average = 0,
                          const std::string& tokenizer_path = {});
};

/// The model in a run folder or a Hugging Face folder, without its weights. Throws: CheckpointError
DecoderOnlyConfig model_config_in(const std::string& folder);

/// The options of the run's training; none for another program's model. Throws: CheckpointError
std::optional<LanguageOptions> training_in(const std::string& folder);

/// The model that a new training starts from: random, or with the weights in the folder options.from.
/// Throws: CheckpointError, Error
DecoderOnly initial_model(const LanguageOptions& options, Index vocabulary);

}  // namespace tapeformer
