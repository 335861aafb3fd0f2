#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/gguf_tokenizer.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/formats/gguf_model.h>

#include <cstdio>
#include <filesystem>

namespace tapeformer {
namespace {

bool has_gguf_tokenizer(const Tokenizer& tokenizer, Index rows) {
  try {
    gguf_tokenizer(tokenizer, rows);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void write_gguf(LanguageRun& run, const ExportOptions& options) {
  if (std::filesystem::exists(options.output))
    throw DataError(options.output, 0, "already exists; remove it, or name another --output");
  const Index rows = run.model.config().vocabulary;
  if (run.tokenizer->kind() == std::string("tokenizer_json")) {
    // As in llama.cpp's converter: the format can hold SentencePiece models, but not most of tokenizer.json.
    const std::string folder =
        options.tokenizer_model.empty() ? base_of(options.run) : options.tokenizer_model;
    const auto pieces = find_sentencepiece(folder);
    if (pieces && pieces->vocabulary_size() <= rows) run.tokenizer = pieces;
  }
  save_gguf_model(options.output, run.model, gguf_tokenizer(*run.tokenizer, rows),
                  kind_named<GgufType>(options.type));
  print("{}: the model and its tokenizer\n", options.output);
  if (!run.tokenizer->end())
    std::fputs("the format wants an end token, which this tokenizer lacks: generate with --ignore-eos\n",
               stdout);
}

}  // namespace

ExportFormat gguf_export() {
  return {gguf_format(), "a file for llama.cpp (GPT-2 or Llama)", {"--type"}, has_gguf_tokenizer, write_gguf};
}

}  // namespace tapeformer
