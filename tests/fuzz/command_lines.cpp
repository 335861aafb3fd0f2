#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/language/evaluate.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/generate.h>
#include <tapeformer/examples/language/options.h>
#include <tapeformer/examples/language/presets.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/train_command.h>
#include <tapeformer/examples/translation/options.h>
#include <tapeformer/tests/fuzz/families.h>

#include <algorithm>
#include <iostream>
#include <sstream>

namespace tapeformer {
namespace {

/// The arguments are the lines of an input; a real one cannot hold a NUL.
std::vector<std::string> arguments_of(const std::string& input) {
  std::vector<std::string> arguments{"program"};
  std::istringstream lines(input);
  for (std::string line; std::getline(lines, line);) arguments.push_back(line.substr(0, line.find('\0')));
  return arguments;
}

std::vector<const char*> pointers_to(const std::vector<std::string>& arguments) {
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  pointers.push_back(nullptr);
  return pointers;
}

/// Keeps what --help prints from the terminal.
class Silence {
 public:
  Silence() : before_(std::cout.rdbuf(text_.rdbuf())) {}
  ~Silence() { std::cout.rdbuf(before_); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

}  // namespace

Seeds language_command_seeds() {
  return {
      "train\n--run\nx\n--corpus\na\nb\n--preset\nshakespeare-char-cpu\n--layers\n2\n--width=32\n--heads\n2\n"
      "--dropout\n0.1\n--steps\n60\n--warmup\n5\n--learning-rate\n1e-3\n--bias=false\n--feed-forward-"
      "kind\nswiglu\n",
      "train\n--run\nx\n--attention\ngqa\n--groups\n2\n--positions\nrotary\n--optimizer\nsgd\n--fused-head\n",
      "generate\n--run\nx\n--prompt\nIt was\n--temperature\n0.8\n--top-k\n3\n--stop\n.\n--seed\n7\n",
      "evaluate\n--run\nx\n--context\n8\n--threads\n1\n",
      "export\n--run\nx\n--output\ny\n",
      "train\n--help\n"};
}

void read_language_command(const std::string& input) {
  const Silence silence;
  const std::vector<std::string> arguments = arguments_of(input);
  const std::vector<const char*> pointers = pointers_to(arguments);
  const int count = static_cast<int>(arguments.size());
  const CommandLine line("a program");
  line.version("1");
  TrainCommand train;
  LanguageOptions language(preset_named_in(count, pointers.data()));
  const Command train_command = line.command("train", "train");
  train.add_to(train_command);
  language.add_to(train_command);
  GenerateOptions generate;
  const Command generate_command = line.command("generate", "generate");
  generate.add_to(generate_command);
  EvaluateOptions evaluate;
  const Command evaluate_command = line.command("evaluate", "evaluate");
  evaluate.add_to(evaluate_command);
  LanguageDataOptions prepare;
  const Command prepare_command = line.command("prepare", "prepare");
  prepare.add_to(prepare_command);
  ExportOptions export_options;
  const Command export_command = line.command("export", "export");
  export_options.add_to(export_command);
  if (!line.read(count, pointers.data())) return;
  if (train_command.chosen()) {
    adapt_preset(language, train_command);
    language.check();
    language.refuse_ignored(train_command);
    language.make_paths_absolute();
    language.model_config(65).check();
  } else if (generate_command.chosen()) {
    generate.refuse_ignored(generate_command);
    generate.config();
  } else if (evaluate_command.chosen()) {
    evaluate.refuse_ignored(evaluate_command);
  } else if (prepare_command.chosen()) {
    prepare.check();
    prepare.refuse_ignored(prepare_command);
  }
}

Seeds translation_command_seeds() {
  return {
      "train\n--run\nx\n--pairs\na.tsv\n--swap\n--max-words\n9\n--tokenizer\nbpe\n--vocabulary\n500\n--"
      "width\n32\n"
      "--heads\n4\n--label-smoothing\n0.1\n--positions\nrotary\n--validation-pairs\nb.tsv\n",
      "train\n--run\nx\n--source\na\n--target\nb\n--attention\nadditive\n--shared-vocabulary\n--held-"
      "out\n20\n"};
}

void read_translation_command(const std::string& input) {
  const Silence silence;
  const std::vector<std::string> arguments = arguments_of(input);
  const std::vector<const char*> pointers = pointers_to(arguments);
  const CommandLine line("a program");
  TrainCommand train;
  TranslationOptions translation;
  const Command command = line.command("train", "train");
  train.add_to(command);
  translation.add_to(command);
  if (!line.read(static_cast<int>(arguments.size()), pointers.data())) return;
  translation.training.adapt(command);
  translation.check();
  translation.refuse_ignored(command);
  translation.make_paths_absolute();
  translation.model_config(40, 40).check();
}

}  // namespace tapeformer
