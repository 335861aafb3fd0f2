#pragma once

#include <tapeformer/examples/language/run.h>
#include <tapeformer/nn/formats/expression.h>

#include <string>
#include <vector>

namespace tapeformer {

struct ExportOptions {
  std::string run, output, tokenizer_model, format = "transformers", type = "f16";
  Index average = 0;
  bool adapters = false;  ///< write them alone, as PEFT does

  void add_to(const Command& command);
  /// Throws: Error naming an option that the format ignores
  void refuse_ignored(const Command& command) const;
};

/// A format that `export` writes, in a file of its own.
struct ExportFormat {
  const ModelFormat& models;                  ///< its name and its families
  std::string help;                           ///< its description in --help
  std::vector<const char*> own_options = {};  ///< options of `export` for this format alone
  /// True if the format can hold the tokenizer of a model with `rows` tokens.
  bool (*has_tokenizer)(const Tokenizer& tokenizer, Index rows);
  /// Writes a model that the format can express. Leaves nothing behind after an error.
  void (*write)(LanguageRun& run, const ExportOptions& options);
};
ExportFormat transformers_export();
ExportFormat gguf_export();

/// The formats that a model can be exported to, with the options that it lacks: "transformers (GPT-2); gguf
/// only with --feed-forward-kind gelu_tanh (GPT-2)". With a tokenizer, also whether a format can hold it.
std::string exports_text(const DecoderOnlyConfig& config, const Tokenizer* tokenizer = nullptr);

/// Writes a trained model and its tokenizer as a folder that transformers loads, or as a GGUF file; returns
/// the exit code. Leaves nothing behind after an error. Throws: Error and its subclasses
int export_model(const ExportOptions& options);

}  // namespace tapeformer
