#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <string>

namespace tapeformer {

class Command;

struct ExportOptions {
  std::string run, output, tokenizer_model, format = "transformers", type = "f16";
  Index average = 0;

  void add_to(const Command& command);
  /// Throws: Error naming an option that the format takes no notice of
  void refuse_ignored(const Command& command) const;
};

/// The formats that a model is or would be exported to: "transformers (GPT-2); gguf only with
/// --feed-forward-kind gelu_tanh (GPT-2)". With a tokenizer, whether the format has that too.
std::string exports_text(const DecoderOnlyConfig& config, const Tokenizer* tokenizer = nullptr);

/// Writes a trained model and its tokenizer as a folder that transformers loads, or as a GGUF file; returns
/// the exit code.
/// Leaves nothing behind after an error. Throws: Error and its subclasses
int export_model(const ExportOptions& options);

}  // namespace tapeformer
