#pragma once

#include <tapeformer/examples/translation/options.h>

namespace tapeformer {

class Command;

struct TranslationExportOptions {
  std::string run, output, format;  ///< no format: transformers if the model came from it, else marian
  Index average = 0;
  SentenceOptions sentences;

  void add_to(const Command& command);
  void refuse_ignored(const Command&) const {}
};

/// Writes a trained model and its vocabularies as another program's folder; returns the exit code. Leaves
/// nothing behind after an error. Throws: Error and its subclasses
int export_translation(const TranslationExportOptions& options);

}  // namespace tapeformer
