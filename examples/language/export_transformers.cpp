#include <tapeformer/autograd/error.h>
#include <tapeformer/data/partial_folder.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/peft.h>

#include <cstdio>

namespace tapeformer {
namespace {

void write_adapters(const ExportOptions& options) {
  if (base_of(options.run) != options.run)
    throw Error(options.run + " is a folder of adapters already; copy it, or leave out --adapters");
  const std::optional<LanguageOptions> trained = training_in(options.run);
  if (!trained || trained->model.adapter.rank == 0)
    throw Error(options.run + " has no adapters; train them with --lora, or leave out --adapters");
  if (base_of(trained->from) != trained->from)
    throw Error(options.run + " has adapters for a model with those in " + trained->from +
                ", which PEFT cannot name; leave out --adapters");
  DecoderOnly model = DecoderOnly::load(options.run);
  if (options.average > 0) RunFolder(options.run).load_average(options.average, model);
  PartialFolder folder(options.output, {"adapter_config.json", "adapter_model.safetensors"});
  folder.fill([&] { save_peft(folder.path(), model, trained->from); });
  folder.finish();
  print("{}: adapter_config.json, adapter_model.safetensors\n", options.output);
}

void write_transformers(LanguageRun& run, const ExportOptions& options) {
  if (options.adapters) return write_adapters(options);
  PartialFolder folder(options.output,
                       {"config.json", "model.safetensors", "tokenizer.json", kTokenizerFile,
                        "tokenizer.model", "tokenizer_config.json", "vocab.json", "merges.txt"});
  ControlTokens tokens{run.tokenizer->begin(), {}};
  for (const std::int32_t id : run.tokenizer->ends())
    if (id < run.model.config().vocabulary) tokens.ends.push_back(id);
  std::string files;
  folder.fill([&] {
    save_hugging_face(folder.path(), run.model, tokens);
    files = export_tokenizer(*run.tokenizer, folder.path());
  });
  folder.finish();
  print("{}: config.json, model.safetensors, {}\n", options.output, files);
  const std::string kind = run.tokenizer->kind();
  if (kind == "character") {
    print("the characters are in tokenizer.json for transformers, and in {} for this program\n",
          kTokenizerFile);
  } else if (kind == "byte") {
    std::fputs("the bytes are written as a byte-level tokenizer without merges\n", stdout);
  }
}

}  // namespace

ExportFormat transformers_export() {
  return {transformers_format(),
          "a folder (" + family_titles() + ")",
          {"--adapters"},
          [](const Tokenizer&, Index) { return true; },
          write_transformers};
}

}  // namespace tapeformer
