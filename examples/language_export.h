#pragma once

#include <tapeformer/autograd/shape.h>

#include <string>

namespace CLI {
class App;
}

namespace tapeformer {

struct ExportOptions {
  std::string run, output;
  Index average = 0;

  void add_to(CLI::App& app);
};

/// Writes a trained model and its tokenizer as a folder that transformers loads; returns the exit code. After
/// an error nothing that was written stays. Throws: Error and what derives from it
int export_model(const ExportOptions& options);

}  // namespace tapeformer
