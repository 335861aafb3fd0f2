#pragma once

#include <tapeformer/autograd/shape.h>

#include <string>

namespace tapeformer {

class Command;

struct ExportOptions {
  std::string run, output, tokenizer_model;
  Index average = 0;

  void add_to(const Command& command);
};

/// Writes a trained model and its tokenizer as a folder that transformers loads; returns the exit code.
/// Leaves nothing behind after an error. Throws: Error and its subclasses
int export_model(const ExportOptions& options);

}  // namespace tapeformer
