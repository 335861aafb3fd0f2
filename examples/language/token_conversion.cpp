#include <tapeformer/autograd/error.h>
#include <tapeformer/data/llm_c_tokens.h>
#include <tapeformer/data/partial_folder.h>
#include <tapeformer/examples/language/token_conversion.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>

namespace tapeformer {

void TokenConversionOptions::add_to(const Command& command) {
  command.option("--output", output, "the folder to write; it must not hold anything").required();
  command.option("--tokens", tokens, "a folder that `prepare` wrote, to be written as train.bin and val.bin");
  command.option("--train", train, "llm.c's .bin files to train on, to be made such a folder");
  command.option("--validation", validation, "llm.c's .bin files to validate on");
  command.option("--tokenizer-model", tokenizer_model,
                 "the tokenizer of the .bin files: a folder with one, or a file");
}

int convert_tokens(const TokenConversionOptions& options) {
  const bool reads =
      !options.train.empty() && !options.validation.empty() && !options.tokenizer_model.empty();
  const bool reads_any =
      !options.train.empty() || !options.validation.empty() || !options.tokenizer_model.empty();
  if (options.tokens.empty() ? !reads : reads_any) {
    throw Error(
        "tokens takes either --tokens, to write files of llm.c, or --train, --validation and "
        "--tokenizer-model, to read them");
  }
  if (reads) {
    const PreparedTokens made = prepare_llm_c_tokens(
        options.train, options.validation, *find_tokenizer(options.tokenizer_model), options.output);
    print("%s: %lld tokens to train on, %lld to validate on\n", options.output, made.train.size(),
          made.validation.size());
    return kExitSuccess;
  }
  const PreparedTokens tokens = PreparedTokens::open(options.tokens);
  PartialFolder folder(options.output, {"train.bin", "val.bin"});
  write_llm_c_tokens(tokens.train, folder.file("train.bin"));
  write_llm_c_tokens(tokens.validation, folder.file("val.bin"));
  folder.finish();
  print("%s: train.bin of %lld tokens, val.bin of %lld\n", options.output, tokens.train.size(),
        tokens.validation.size());
  return kExitSuccess;
}

}  // namespace tapeformer
