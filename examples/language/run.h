#pragma once

#include <tapeformer/data/tokenizers/text_tokenizer.h>
#include <tapeformer/examples/language/options.h>
#include <tapeformer/nn/transformer/decoder_only.h>

#include <memory>
#include <optional>
#include <string>

namespace tapeformer {

/// A trained model and its tokenizer, in evaluation mode.
struct LanguageRun {
  DecoderOnly model;
  std::shared_ptr<const TextTokenizer> tokenizer;

  /// From a run folder of this program or a Hugging Face folder. With `average`, the mean of the last so
  /// many weights that the run kept. The tokenizer is that of `tokenizer_path`, unless it is empty.
  /// Throws: CheckpointError, DataError
  static LanguageRun load(const std::string& folder, Index average = 0,
                          const std::string& tokenizer_path = {});
};

/// The model in a run folder or a Hugging Face folder, without its weights. Throws: CheckpointError
DecoderOnlyConfig model_config_in(const std::string& folder);

/// How the run was trained, or nothing for another program's model. Throws: CheckpointError
std::optional<LanguageOptions> training_in(const std::string& folder);

/// The model that a new training begins with: drawn anew, or, with options.from, with the weights in that
/// folder. Throws: CheckpointError, Error
DecoderOnly initial_model(const LanguageOptions& options, Index vocabulary);

}  // namespace tapeformer
