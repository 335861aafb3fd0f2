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
    if (folder.writes() && !folder.has_checkpoint()) discard_language_data(folder);
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
    command.option("--output", output, "the folder to write; it must not hold anything").required();
    data.tokenizer = "bpe";
    data.add_to(command);
  }
};

int prepare(const PrepareOptions& options, const Command& command) {
  remember_interrupts();
  say_at_interrupt(kStopping);
  options.data.check();
  options.data.refuse_ignored(command);
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
    command.option("--output", output, "the folder to write, for train --tokens; it must not hold anything")
        .required();
    command.option("--train", train, "llm.c's .bin files to train on").required();
    command.option("--validation", validation, "llm.c's .bin files to validate on").required();
    command.option("--tokenizer-model", tokenizer_model, "the files' tokenizer: a folder with one, or a file")
        .required();
  }
};

int convert_tokens(const TokenConversionOptions& options) {
  const PreparedTokens made = prepare_llm_c_tokens(options.train, options.validation,
                                                   *find_tokenizer(options.tokenizer_model), options.output);
  print("{}: {} tokens to train on, {} to validate on\n", options.output, made.train.size(),
        made.validation.size());
  return kExitSuccess;
}

int run(int argc, char** argv) {
  const CommandLine line(
      "Trains a language model, and continues texts with it.\n"
      "  train_language_model train --run runs/own                    the built-in text, as characters\n"
      "  train_language_model train --run runs/mine --corpus book.txt --preset shakespeare-char-cpu\n"
      "  train_language_model generate --run runs/mine --prompt 'It was'\n"
      "  train_language_model evaluate --run runs/mine\n"
      "  train_language_model export --run runs/mine --output for-transformers");
  line.version(std::string("tapeformer ") + kVersion);

  LanguageOptions language(preset_named_in(argc, argv));
  TrainCommand train(line, argc, argv);
  language.add_to(train.command());
  train.command().footer(presets_text(language_presets(), exports_of));

  GenerateOptions generate_options;
  const Command generate_command =
      line.command("generate", "continue a text on standard output as it is drawn; Ctrl-C ends it");
  generate_options.add_to(generate_command);

  EvaluateOptions evaluate_options;
  const Command evaluate_command =
      line.command("evaluate", "measure the loss on the held-out text, or on another");
  evaluate_options.add_to(evaluate_command);

  PrepareOptions prepare_options;
  const Command prepare_command =
      line.command("prepare", "make a tokenizer and token files from a corpus, for train --tokens");
  prepare_options.add_to(prepare_command);

  TokenConversionOptions token_options;
  const Command token_command =
      line.command("tokens", "convert llm.c's .bin files to token files, for train --tokens");
  token_options.add_to(token_command);

  ExportOptions export_options;
  const Command export_command = line.command("export", "write a model for transformers, or as a GGUF file");
  export_options.add_to(export_command);

  const auto reports = add_report_commands(line);
  SweepCommand sweep(line, argc, argv);

  line.command("fields", "print the fields of config.json, as Markdown");

  if (!line.read(sweep.own_words(), argv)) return kExitSuccess;
  try {
    if (const std::optional<int> code = reports()) return *code;
    if (sweep.chosen()) return sweep.execute();
    if (train.command().chosen()) {
      return train.execute(
          {"Preset", "Data", "Model", "Training"}, language.training,
          [&](const RunFolder& folder, const TrainingControl& control) {
            return start(folder, control, language, train.command());
          },
          resume_language_model);
    }
    if (generate_command.chosen()) {
      generate_options.refuse_ignored(generate_command);
      return generate(generate_options);
    }
    if (evaluate_command.chosen()) {
      evaluate_options.refuse_ignored(evaluate_command);
      return evaluate(evaluate_options);
    }
    if (prepare_command.chosen()) return prepare(prepare_options, prepare_command);
    if (token_command.chosen()) return convert_tokens(token_options);
    if (export_command.chosen()) {
      export_options.refuse_ignored(export_command);
      return export_model(export_options);
    }
    const DecoderOnlyConfig model;
    const LanguageOptions options;
    print("{}", fields_document("train_language_model", fields_of(model), fields_of(options)));
    return kExitSuccess;
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
