#include <tapeformer/autograd/error.h>
#include <tapeformer/data/partial_folder.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/gguf_tokenizer.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/gguf_model.h>
#include <tapeformer/nn/formats/hugging_face.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

namespace tapeformer {

void ExportOptions::add_to(const Command& command) {
  command.option("--run", run, "the run folder").required().not_empty();
  command.option("--output", output, "the folder to write, which must not hold anything; of gguf the file")
      .required();
  command
      .option("--format", format,
              "transformers, a folder (" + hugging_face_titles("or") +
                  "), or gguf, a file for llama.cpp (GPT-2 or Llama)")
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

/// An expression's changes as options of the program, or as fields of config.json where it has none.
struct ChangedOptions {
  std::vector<std::string> has, wants;

  ChangedOptions(const DecoderOnlyConfig& config, const Expression& expression) {
    static const std::map<std::string, std::string> others = {{"attention_bias", "bias"},
                                                              {"feed_forward_bias", "bias"},
                                                              {"activation", "feed_forward_kind"},
                                                              {"gated", "feed_forward_kind"}};
    LanguageOptions now, then;
    now.model = config, then.model = expression.nearest;
    const FieldList options = fields_of(now), wanted = fields_of(then);
    for (const FieldChange& change : expression.changes) {
      const auto other = others.find(change.field);
      const std::string& name = other == others.end() ? change.field : other->second;
      const auto option = std::find_if(options.begin(), options.end(),
                                       [&](const ConfigField& field) { return field.name == name; });
      const std::size_t i = static_cast<std::size_t>(option - options.begin());
      if (option == options.end() || option->value() == wanted[i].value()) {
        add(change.field + "=" + change.has, change.field + "=" + change.wants);
      } else {
        add(given(*option), given(wanted[i]));
      }
    }
  }

 private:
  static std::string given(const ConfigField& option) {
    const std::string flag = flag_of(option.name), text = option.text();
    if (std::holds_alternative<bool>(option.zero())) return text == "true" ? flag : flag + "=" + text;
    return flag + " " + (text.empty() ? "''" : text);
  }
  void add(const std::string& one, const std::string& other) {
    if (std::find(has.begin(), has.end(), one) != has.end()) return;
    has.push_back(one);
    wants.push_back(other);
  }
};

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

bool can_be_gguf(const TextTokenizer& tokenizer, Index rows) {
  try {
    gguf_tokenizer(tokenizer, rows);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Throws: CheckpointError that says what the format wants instead
void require_expressed(const DecoderOnlyConfig& config, const Expression& expression) {
  if (expression.changes.empty()) return;
  const ChangedOptions options(config, expression);
  const bool is_other_format = expression_in_transformers(config).changes.empty();
  throw CheckpointError(expression.refusal(
      joined(options.has, ", "), (is_other_format ? "--format transformers, or a model" : "a model") +
                                     (" trained with " + joined(options.wants, " "))));
}

int export_gguf(LanguageRun& run, const ExportOptions& options) {
  if (std::filesystem::exists(options.output))
    throw DataError(options.output, 0, "already exists; remove it, or name another --output");
  require_expressed(run.model.config(), expression_in_gguf(run.model.config()));
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

std::string exports_text(const DecoderOnlyConfig& config, const TextTokenizer* tokenizer) {
  const auto how = [&](const Expression& expression) {
    const ChangedOptions options(config, expression);
    return (options.wants.empty() ? "" : " only with " + joined(options.wants, " ")) + " (" +
           expression.family->title + ")";
  };
  const std::string in_transformers = how(expression_in_transformers(config)),
                    in_gguf = tokenizer && !can_be_gguf(*tokenizer, config.vocabulary)
                                  ? " not, for its tokenizer"
                                  : how(expression_in_gguf(config));
  if (in_transformers == in_gguf) return "transformers and gguf" + in_gguf;
  return "transformers" + in_transformers + "; gguf" + in_gguf;
}

int export_model(const ExportOptions& options) {
  LanguageRun run = LanguageRun::load(options.run, options.average, options.tokenizer_model);
  if (options.format == "gguf") return export_gguf(run, options);
  require_expressed(run.model.config(), expression_in_transformers(run.model.config()));
  PartialFolder folder(options.output,
                       {"config.json", "model.safetensors", "tokenizer.json", kTokenizerFile,
                        "tokenizer.model", "tokenizer_config.json", "vocab.json", "merges.txt"});
  ControlTokens tokens{run.tokenizer->begin(), {}};
  for (const std::int32_t id : run.tokenizer->ends())
    if (id < run.model.config().vocabulary) tokens.ends.push_back(id);
  std::string files;
  try {
    save_hugging_face(folder.path(), run.model, tokens);
    files = export_tokenizer(*run.tokenizer, folder.path());
  } catch (const CheckpointError& error) {
    std::string text = error.what();
    if (text.find(folder.path()) == 0) text.replace(0, folder.path().size(), options.output);
    throw CheckpointError(text);
  }
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
