#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/nn/formats/hugging_face.h>

#include <filesystem>

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

/// True if the folder did not exist, so that it can be removed after an error.
bool make_folder(const std::string& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && (!fs::is_directory(folder, error) || !fs::is_empty(folder, error)))
    throw DataError(folder, 0, "already exists; name another --output");
  const bool made = fs::create_directories(folder, error);
  if (error) throw DataError(folder, 0, "cannot be made: " + error.message());
  return made;
}

void empty_folder(const std::string& folder, bool remove) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) fs::remove(entry.path(), error);
  if (remove) fs::remove(folder, error);
}

}  // namespace

void ExportOptions::add_to(const Command& command) {
  command.option("--run", run, "the run folder").required();
  command.option("--output", output, "the folder to write; it must not hold anything").required();
  add_average_option(command, average);
  command.option("--tokenizer-model", tokenizer_model, "a tokenizer to use instead of the folder's own");
}

int export_model(const ExportOptions& options) {
  LanguageRun run = LanguageRun::load(options.run, options.average, options.tokenizer_model);
  const bool made = make_folder(options.output);
  std::string files;
  try {
    save_hugging_face(options.output, run.model, {run.tokenizer->begin(), run.tokenizer->end()});
    files = export_tokenizer(*run.tokenizer, options.output);
  } catch (...) {
    empty_folder(options.output, made);
    throw;
  }
  print("%s: config.json, model.safetensors, %s\n", options.output, files);
  const std::string kind = run.tokenizer->kind();
  if (kind == "character") {
    print("the characters are tokenizer.json for transformers, and %s for this program\n", kTokenizerFile);
  } else if (kind == "byte") {
    print("the bytes are a byte-level tokenizer without merges\n");
  }
  return kExitSuccess;
}

}  // namespace tapeformer
