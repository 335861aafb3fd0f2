#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/data/llm_c_tokens.h>
#include <tapeformer/examples/language/data.h>
#include <tapeformer/examples/language/evaluate.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/generate.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/language/trainer.h>
#include <tapeformer/examples/report/report_commands.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/sweep.h>
#include <tapeformer/examples/shared/train_command.h>

#include <cstdio>

namespace tapeformer {
namespace {

std::string exports_of(const Preset& preset) {
  const LanguageOptions options(preset.name);
  return ". Export: " + exports_text(options.model_config(options.data.vocabulary));
}

int start(const RunFolder& folder, const TrainingControl& control, LanguageOptions options,
          const Command& command) {
  folder.refuse_if_used();
  adapt_preset(options, command);
  if (!options.from.empty()) take_fine_tuned(options, model_config_in(options.from), command);
  options.check();
  options.refuse_ignored(command);
  make_absolute(fields_of(options));
  const auto tidy_up = [&] {
    if (folder.writes() && options.tokens.empty() && !folder.has_checkpoint()) discard_language_data(folder);
  };
  try {
    const int code = train_language_model(folder, options, control);
    tidy_up();
    return code;
  } catch (...) {
    tidy_up();
    throw;
  }
}

struct PrepareOptions {
  std::string output;
  LanguageDataOptions data;

  void add_to(const Command& command) {
    command.required("--output", output, "the folder to write; it must not hold anything");
    data.tokenizer = "bpe";
    add_options(command, fields_of(data));
  }
  void refuse_ignored(const Command& command) const {
    data.check();
    data.refuse_ignored(command);
  }
};

int prepare(const PrepareOptions& options) {
  remember_interrupts();
  say_at_interrupt(kStopping);
  check_unprepared(options.output);  // before a tokenizer is made
  Progress progress;
  const LanguageData data = prepare_corpus(options.data, nullptr, options.output, progress);
  print("{}: {} tokens to train on, {} to validate on; a {} tokenizer of {}\n", options.output,
        data.train.size(), data.validation.size(), data.tokenizer->kind(), data.tokenizer->vocabulary_size());
  return kExitSuccess;
}

struct TokenConversionOptions {
  std::string output, tokenizer_model;
  std::vector<std::string> train, validation;

  void add_to(const Command& command) {
    command.required("--output", output,
                     "the folder to write, for train --tokens; it must not hold anything");
    command.option("--train", train, "llm.c's .bin files to train on").required();
    command.option("--validation", validation, "llm.c's .bin files to validate on").required();
    command.option("--tokenizer-model", tokenizer_model, "the files' tokenizer: a folder with one, or a file")
        .required();
  }
  void refuse_ignored(const Command&) const {}
};

int convert_tokens(const TokenConversionOptions& options) {
  const PreparedTokens made = prepare_llm_c_tokens(options.train, options.validation,
                                                   *find_tokenizer(options.tokenizer_model), options.output);
  print("{}: {} tokens to train on, {} to validate on\n", options.output, made.train.size(),
        made.validation.size());
  return kExitSuccess;
}

int run(int argc, char** argv) {
  CommandLine line(
      "Trains a language model, and continues texts with it.\n"
      "  train_language_model train --run runs/own                    the built-in text, as characters\n"
      "  train_language_model train --run runs/mine --corpus book.txt --preset shakespeare-char-cpu\n"
      "  train_language_model generate --run runs/mine --prompt 'It was'\n"
      "  train_language_model evaluate --run runs/mine\n"
      "  train_language_model export --run runs/mine --output for-transformers");
  line.version(std::string("tapeformer ") + kVersion);

  LanguageOptions language(preset_named_in(argc, argv));
  TrainCommand train(
      line, argc, argv, language.training,
      [&](const RunFolder& folder, const TrainingControl& control) {
        return start(folder, control, language, train.command());
      },
      resume_language_model);
  language.add_to(train.command());
  train.command().footer(presets_text(language_presets(), exports_of));

  add_command<GenerateOptions>(line, "generate",
                               "continue a text on standard output as it is drawn; Ctrl-C ends it", generate);
  add_command<EvaluateOptions>(line, "evaluate", "measure the loss on the held-out text, or on another",
                               evaluate);
  add_command<PrepareOptions>(line, "prepare",
                              "make a tokenizer and token files from a corpus, for train --tokens", prepare);
  add_command<TokenConversionOptions>(
      line, "tokens", "convert llm.c's .bin files to token files, for train --tokens", convert_tokens);
  add_command<ExportOptions>(line, "export", "write a model for transformers, or as a GGUF file",
                             export_model);
  add_report_commands(line);
  SweepCommand sweep(line, argc, argv, train);
  line.command("fields", "print the fields of config.json, as Markdown", [](const Command&) {
    const DecoderOnlyConfig model;
    print("{}", fields_document("train_language_model", fields_of(model), fields_of(LanguageOptions())));
    return kExitSuccess;
  });

  if (!line.read(sweep.own_words(), argv)) return kExitSuccess;
  try {
    return line.execute();
  } catch (const Interrupted& interrupted) {
    std::fprintf(stderr, "%s\n", interrupted.what());
    abort_launch(kExitInterrupted);  // other ranks wait for the data
    return kExitInterrupted;
  }
}

}  // namespace
}  // namespace tapeformer

int main(int argc, char** argv) {
  return tapeformer::run_program("train_language_model", [&] { return tapeformer::run(argc, argv); });
}
