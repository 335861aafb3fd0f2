#include <tapeformer/data/llm_c_tokens.h>
#include <tapeformer/examples/language/token_conversion.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>

namespace tapeformer {

void TokenConversionOptions::add_to(const Command& command) {
  command.option("--output", output, "the folder to write, for train --tokens; it must not hold anything")
      .required();
  command.option("--train", train, "llm.c's .bin files to train on").required();
  command.option("--validation", validation, "llm.c's .bin files to validate on").required();
  command.option("--tokenizer-model", tokenizer_model, "the files' tokenizer: a folder with one, or a file")
      .required();
}

int convert_tokens(const TokenConversionOptions& options) {
  const PreparedTokens made = prepare_llm_c_tokens(options.train, options.validation,
                                                   *find_tokenizer(options.tokenizer_model), options.output);
  print("{}: {} tokens to train on, {} to validate on\n", options.output, made.train.size(),
        made.validation.size());
  return kExitSuccess;
}

}  // namespace tapeformer
