#pragma once

#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/nn/formats/expression.h>

#include <string>
#include <vector>

// The formats that `export` writes, each in a file of its own.
namespace tapeformer {

struct ExportFormat {
  const ModelFormat& models;                  ///< its name, and what it expresses
  std::string help;                           ///< what --format calls it
  std::vector<const char*> own_options = {};  ///< options of `export` for this format alone
  /// False for a tokenizer that the format lacks, of a model with `rows` tokens.
  bool (*has_tokenizer)(const Tokenizer& tokenizer, Index rows);
  /// Writes a model that the format expresses. Leaves nothing behind after an error.
  void (*write)(LanguageRun& run, const ExportOptions& options);
};

ExportFormat transformers_export();
ExportFormat gguf_export();

}  // namespace tapeformer
