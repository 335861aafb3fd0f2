#include <tapeformer/autograd/error.h>
#include <tapeformer/data/partial_folder.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/gguf_tokenizer.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/nn/formats/gguf_model.h>
#include <tapeformer/nn/formats/hugging_face.h>

#include <cstdio>
#include <filesystem>

namespace tapeformer {

void ExportOptions::add_to(const Command& command) {
  command.option("--run", run, "the run folder").required().not_empty();
  command.option("--output", output, "the folder to write, which must not hold anything; of gguf the file")
      .required();
  command.option("--format", format, "transformers, a folder, or gguf, a file for llama.cpp")
      .one_of({"transformers", "gguf"});
  command.option("--type", type, "of the matrices in a gguf file: f32, f16 or q8_0")
      .one_of({"f32", "f16", "q8_0"});
  add_average_option(command, average);
  command.option("--tokenizer-model", tokenizer_model, "a tokenizer to use instead of the folder's own");
}

void ExportOptions::refuse_ignored(const Command& command) const {
  if (format != "gguf") command.refuse({"--type"}, "without --format gguf");
}

namespace {

int export_gguf(LanguageRun& run, const ExportOptions& options) {
  if (std::filesystem::exists(options.output))
    throw DataError(options.output, 0, "already exists; remove it, or name another --output");
  if (run.tokenizer->kind() == std::string("tokenizer_json")) {
    // As llama.cpp's converter does: the format has SentencePiece's models, and not most of tokenizer.json.
    const std::string& folder = options.tokenizer_model.empty() ? options.run : options.tokenizer_model;
    const auto pieces = find_sentencepiece(folder);
    if (pieces && pieces->vocabulary_size() <= run.model.config().vocabulary) run.tokenizer = pieces;
  }
  save_gguf_model(options.output, run.model, gguf_tokenizer(*run.tokenizer, run.model.config().vocabulary),
                  gguf_type(options.type));
  print("%s: the model and its tokenizer\n", options.output);
  if (!run.tokenizer->end())
    std::fputs("the format wants an end token, which this tokenizer lacks: generate with --ignore-eos\n",
               stdout);
  return kExitSuccess;
}

}  // namespace

int export_model(const ExportOptions& options) {
  LanguageRun run = LanguageRun::load(options.run, options.average, options.tokenizer_model);
  if (options.format == "gguf") return export_gguf(run, options);
  PartialFolder folder(options.output,
                       {"config.json", "model.safetensors", "tokenizer.json", kTokenizerFile,
                        "tokenizer.model", "tokenizer_config.json", "vocab.json", "merges.txt"});
  ControlTokens tokens{run.tokenizer->begin(), {}};
  for (const std::int32_t id : run.tokenizer->ends())
    if (id < run.model.config().vocabulary) tokens.ends.push_back(id);
  save_hugging_face(folder.path(), run.model, tokens);
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
