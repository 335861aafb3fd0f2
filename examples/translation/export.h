#pragma once

#include <tapeformer/autograd/shape.h>

#include <string>

namespace tapeformer {

class Command;

struct TranslationExportOptions {
  std::string run, output, format = "marian";
  Index average = 0;

  void add_to(const Command& command);
};

/// Writes a trained model and its vocabularies as a folder of another program; returns the exit code. Leaves
/// nothing behind after an error. Throws: Error and its subclasses
int export_translation(const TranslationExportOptions& options);

}  // namespace tapeformer
