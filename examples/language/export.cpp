#include <tapeformer/data/partial_folder.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/nn/formats/hugging_face.h>

#include <cstdio>

namespace tapeformer {

void ExportOptions::add_to(const Command& command) {
  command.option("--run", run, "the run folder").required();
  command.option("--output", output, "the folder to write; it must not hold anything").required();
  add_average_option(command, average);
  command.option("--tokenizer-model", tokenizer_model, "a tokenizer to use instead of the folder's own");
}

int export_model(const ExportOptions& options) {
  LanguageRun run = LanguageRun::load(options.run, options.average, options.tokenizer_model);
  PartialFolder folder(options.output,
                       {"config.json", "model.safetensors", "tokenizer.json", kTokenizerFile,
                        "tokenizer.model", "tokenizer_config.json", "vocab.json", "merges.txt"});
  save_hugging_face(folder.path(), run.model, {run.tokenizer->begin(), run.tokenizer->end()});
  const std::string files = export_tokenizer(*run.tokenizer, folder.path());
  folder.finish();
  print("%s: config.json, model.safetensors, %s\n", options.output, files);
  const std::string kind = run.tokenizer->kind();
  if (kind == "character") {
    print("the characters are tokenizer.json for transformers, and %s for this program\n", kTokenizerFile);
  } else if (kind == "byte") {
    std::fputs("the bytes are a byte-level tokenizer without merges\n", stdout);
  }
  return kExitSuccess;
}

}  // namespace tapeformer
