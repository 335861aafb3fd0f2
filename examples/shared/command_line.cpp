#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/nn/formats/ends_with.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <system_error>

namespace tapeformer {
namespace {

/// The edit distance: inserted, deleted and replaced characters.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string command_names(const CLI::App& app) {
  return joined(commands_of(app), ", ", [](const CLI::App* command) { return command->get_name(); });
}

/// Options of the programs, of which a command has some, and their names in other programs.
constexpr std::pair<const char*, const char*> kSynonyms[] = {
    {"--learning-rate", "lr max-lr base-lr"},
    {"--minimum-learning-rate", "min-lr"},
    {"--schedule", "lr-scheduler lr-scheduler-type lr-schedule lr-decay"},
    {"--warmup", "warmup-steps warmup-iters num-warmup-steps warmup-updates"},
    {"--steps",
     "epoch epochs num-epochs max-epochs num-train-epochs iters max-iters iterations max-steps "
     "num-steps train-steps max-updates"},
    {"--batch", "batch-size bs mini-batch per-device-train-batch-size"},
    {"--batch-tokens", "batch batch-size bs mini-batch per-device-train-batch-size"},
    {"--accumulate", "grad-accum gradient-accumulation gradient-accumulation-steps accumulation-steps"},
    {"--context",
     "seq-len seq-length sequence-length max-seq-len max-seq-length block-size context-length "
     "context-size context-window ctx-len n-ctx max-length"},
    {"--max-length", "seq-len seq-length sequence-length max-seq-len max-seq-length max-len context"},
    {"--layers", "n-layer n-layers num-layers num-hidden-layers depth"},
    {"--encoder-layers", "layers n-layer n-layers num-layers depth"},
    {"--heads", "n-head n-heads nhead num-heads num-attention-heads"},
    {"--groups", "n-kv-heads kv-heads num-kv-heads num-key-value-heads"},
    {"--head-width", "head-dim head-size"},
    {"--width",
     "d-model dim n-embd embed-dim embedding-dim embedding-size emb-dim hidden-size hidden-dim model-dim"},
    {"--feed-forward", "d-ff ffn-dim ff-dim dim-feedforward intermediate-size mlp-ratio"},
    {"--rotary-base", "rope-theta rope-base"},
    {"--window", "sliding-window window-size"},
    {"--vocabulary", "vocab vocab-size n-vocab"},
    {"--weight-decay", "wd l2"},
    {"--clip", "grad-clip clip-grad clip-norm max-grad-norm gradient-clip gradient-clipping"},
    {"--average-decay", "ema ema-decay"},
    {"--recompute-layers", "gradient-checkpointing activation-checkpointing"},
    {"--patience", "early-stopping early-stop"},
    {"--seed", "random-seed manual-seed rng-seed"},
    {"--validate-every", "eval-every eval-interval eval-steps val-interval"},
    {"--validation-batches", "eval-iters eval-batches"},
    {"--checkpoint-every", "save-every save-steps save-interval"},
    {"--log-every", "log-interval log-steps logging-steps print-every"},
    {"--from", "pretrained init-from finetune fine-tune"},
    {"--resume", "continue resume-from-checkpoint"},
    {"--corpus", "data dataset data-path train-file train-data input text"},
    {"--pairs", "data dataset data-path train-file train-data input corpus"},
    {"--source", "src src-file"},
    {"--target", "tgt tgt-file"},
    {"--validation", "val valid val-file valid-file validation-file"},
    {"--output", "out output-file"},
    {"--run", "out out-dir output output-dir save-dir model checkpoint ckpt load"},
    {"--device", "gpu gpus cuda cpu"},
    {"--precision", "dtype fp16 bf16 amp"},
    {"--threads", "workers num-workers jobs cpus"},
    {"--max-tokens", "max-new-tokens max-length max-len length n-predict"},
    {"--samples", "num-samples num-return-sequences"},
    {"--temperature", "temp"},
    {"--top-p", "nucleus"},
    {"--repetition-penalty", "repeat-penalty"},
    {"--beam", "beams num-beams beam-size beam-width"},
    {"--length-penalty", "lenpen"},
};

/// The option of `command` that `unknown` may mean: one that has this name in other programs, else the one
/// with the smallest edit distance, or one that `unknown` begins with; "" if none is near.
std::string likely_option(const CLI::App& command, const std::string& unknown) {
  std::string plain = unknown.substr(std::min(unknown.find_first_not_of('-'), unknown.size()));
  std::replace(plain.begin(), plain.end(), '_', '-');
  for (const auto& [ours, others] : kSynonyms) {
    const bool is_meant = (' ' + std::string(others) + ' ').find(' ' + plain + ' ') != std::string::npos;
    if (is_meant && command.get_option_no_throw(ours) != nullptr) return ours;
  }
  std::string likely;
  std::size_t least = unknown.size() / 3 + 1;
  for (const CLI::Option* known : command.get_options()) {
    const std::string name = known->get_name();
    const bool begins = unknown.rfind(name + "-", 0) == 0 && name.size() > 2;
    const std::size_t apart = begins ? unknown.size() / 3 : distance(unknown, name);
    if (apart >= least) continue;
    least = apart;
    likely = name;
  }
  return likely;
}

/// Replaces a bracket at the end of a word: CLI11 would parse a text in brackets as a list.
constexpr const char* kMarkedBracket = "]\x01";

std::string without_mark(std::string text) {
  if (ends_with(text, kMarkedBracket)) text.pop_back();
  return text;
}

/// The error message for unknown arguments.
std::string unknown_text(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining(true);
  const auto option =
      std::find_if(left.begin(), left.end(), [](const std::string& text) { return text[0] == '-'; });
  const std::string unknown = option == left.end() ? left.front() : option->substr(0, option->find('='));
  const bool chosen = !app.get_subcommands().empty();
  if (!chosen && !commands_of(app).empty()) {
    return option == left.end() ? "unknown command " + unknown + "; try one of " + command_names(app)
                                : "a command comes before " + unknown + ": one of " + command_names(app);
  }
  if (option == left.end()) return "unexpected argument " + without_mark(unknown);
  const CLI::App& command = chosen ? *app.get_subcommands().front() : app;
  for (const CLI::App* other : commands_of(app)) {
    if (other->get_option_no_throw(unknown) != nullptr)
      return unknown + " is an option of " + other->get_name() + ", not of " + command.get_name();
  }
  const std::string likely = likely_option(command, unknown);
  return "unknown option " + unknown + (likely.empty() ? "; try --help" : "; did you mean " + likely + "?");
}

/// A flag such as --bias=false. Versions of CLI11 differ in the values that they accept for a flag.
CommandOption checked_flag(CLI::Option* flag) {
  flag->check([name = flag->get_name()](const std::string& text) -> std::string {
    static const std::set<std::string> values{"", "true", "yes", "on", "1", "false", "no", "off", "0"};
    if (values.count(CLI::detail::to_lower(text)) > 0) return {};
    throw Error(name + " must be true or false; got " + text);
  });
  return CommandOption(flag);
}

[[noreturn]] void refuse_ignored(const std::string& name, const std::string& when) {
  throw Error(name + " has no effect " + when + "; leave it out");
}

}  // namespace

CommandOption CommandOption::required() const { return option_->required(), *this; }
CommandOption CommandOption::group(const std::string& name) const { return option_->group(name), *this; }
CommandOption CommandOption::needs(CommandOption other) const { return option_->needs(other.option_), *this; }
bool CommandOption::given() const { return option_->count() > 0; }

CommandOption CommandOption::excludes(CommandOption other) const {
  return option_->excludes(other.option_), *this;
}

CommandOption CommandOption::one_of(const std::vector<std::string>& words) const {
  const auto check = [name = option_->get_name(), words](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    throw Error(name + " must be one of " + value_text(words) + "; got " + text);
  };
  return option_->check(check, "{" + CLI::detail::join(words, ",") + "}"), *this;
}

CommandOption CommandOption::not_empty() const {
  option_->check([name = option_->get_name()](const std::string& text) -> std::string {
    if (text.empty()) throw Error(name + " must not be empty");
    return {};
  });
  return *this;
}

CommandOption CommandOption::one_at_a_time() const { return option_->allow_extra_args(false), *this; }

CommandOption CommandOption::optional_value(const std::string& value, const std::string& type) const {
  return option_->expected(0, 1)->default_str(value)->type_name(type), *this;
}

template <class Number>
Number parsed(const std::string& name, const NumberRule& rule, const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  const auto wide = static_cast<double>(number);
  if (error == std::errc::result_out_of_range) throw Error(name + " is out of range; got " + text);
  if (error != std::errc() || stopped != end || !std::isfinite(wide)) {
    const char* type = std::is_floating_point_v<Number> ? "a finite number" : type_text<Number>();
    throw Error(name + " must be " + type + "; got " + text);
  }
  if (!rule.holds(wide)) throw Error(name + " " + rule.words + "; got " + text);
  return number;
}
template int parsed(const std::string&, const NumberRule&, const std::string&);
template Index parsed(const std::string&, const NumberRule&, const std::string&);
template std::uint64_t parsed(const std::string&, const NumberRule&, const std::string&);
template double parsed(const std::string&, const NumberRule&, const std::string&);

CommandOption Command::add(const std::string& name, const std::string& now, const char* type,
                           const std::function<void(const std::string&)>& set,
                           const std::string& help) const {
  const auto set_text = [set](const std::string& text) { set(without_mark(text)); };
  return CommandOption(app_->add_option_function<std::string>(name, set_text, help)
                           ->default_str(now)
                           ->type_name(type)
                           ->take_last());
}

CommandOption Command::add_flag(const std::string& name, const std::function<void(const bool&)>& set,
                                const std::string& help) const {
  const auto flag = [set](std::int64_t count) { set(count > 0); };
  return checked_flag(app_->add_flag_function(name, flag, help));
}

CommandOption Command::add_list(const std::string& name,
                                const std::function<void(const std::vector<std::string>&)>& set,
                                const std::string& help) const {
  const auto set_texts = [set](std::vector<std::string> texts) {
    std::transform(texts.begin(), texts.end(), texts.begin(), without_mark);
    set(texts);
  };
  return CommandOption(app_->add_option_function<std::vector<std::string>>(name, set_texts, help));
}

CommandOption Command::flag(const std::string& name, bool& field, const std::string& help) const {
  return checked_flag(app_->add_flag(name, field, help));
}

CommandOption Command::negative_flag(const std::string& name, bool& field, const std::string& help) const {
  return checked_flag(app_->add_flag_callback(
      name, [&field] { field = false; }, help));
}

void Command::footer(const std::string& text) const { app_->footer(text); }

CommandOption Command::find(const std::string& name) const { return CommandOption(app_->get_option(name)); }

std::vector<std::string> Command::given_of(std::initializer_list<const char*> groups) const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options())
    if (option->count() > 0 && has(option->get_name(), groups)) names.push_back(option->get_name());
  return names;
}

bool Command::has(const std::string& name, std::initializer_list<const char*> groups) const {
  const CLI::Option* const option = app_->get_option_no_throw(name);
  const std::string heading = option != nullptr ? option->get_group() : "";  // "GROUP", or "GROUP: PART"
  return std::find(groups.begin(), groups.end(), heading.substr(0, heading.find(':'))) != groups.end();
}

void Command::refuse(std::initializer_list<const char*> names, const std::string& when) const {
  for (const char* name : names)
    if (find(name).given()) refuse_ignored(name, when);
}

void Command::refuse_all_but(std::initializer_list<const char*> names, const std::string& when) const {
  for (const CLI::Option* option : app_->get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && std::find(names.begin(), names.end(), name) == names.end())
      refuse_ignored(name, when);
  }
}

bool Command::chosen() const { return app_->parsed(); }
std::string Command::help() const { return app_->help(); }

CommandLine::CommandLine(const std::string& description)
    : Command(nullptr), owned_(std::make_unique<CLI::App>(description)) {
  app_ = owned_.get();
}

CommandLine::~CommandLine() = default;

Command CommandLine::command(const std::string& name, const std::string& help, Body body) {
  app_->require_subcommand(1);
  return commands_.emplace_back(app_->add_subcommand(name, help), std::move(body)).first;
}

int CommandLine::execute() const {
  const auto chosen = std::find_if(commands_.begin(), commands_.end(),
                                   [](const auto& command) { return command.first.chosen(); });
  return chosen->second(chosen->first);
}

void CommandLine::version(const std::string& text) const { app_->set_version_flag("--version", text); }

bool CommandLine::read(int argc, const char* const* argv) const {
  for (int i = 1; i < argc; ++i) {  // CLI11's versions also accept different values for these
    const std::string text = argv[i], name = text.substr(0, text.find('='));
    if (name.rfind("--no-", 0) == 0 && name != text) throw Error(name + " takes no value; got " + text);
  }
  std::vector<std::string> words(argv, argv + argc);
  std::vector<const char*> marked;
  for (std::string& word : words) {
    if (ends_with(word, "]")) word.replace(word.size() - 1, 1, kMarkedBracket);
    marked.push_back(word.c_str());
  }
  try {
    app_->parse(argc, marked.data());
  } catch (const CLI::ParseError& error) {
    const bool is_unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                            (app_->get_subcommands().empty() && app_->remaining_size() > 0);
    if (is_unknown) throw Error(unknown_text(*app_));
    if (error.get_exit_code() != 0 && app_->get_subcommands().empty() && !commands_of(*app_).empty())
      throw Error("a command is required: one of " + command_names(*app_) + "; try --help");
    if (error.get_exit_code() != 0) throw Error(error.what());
    app_->exit(error);
    return false;
  }
  return true;
}

std::string command_text(const std::vector<std::string>& words) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  const std::string program = std::filesystem::path(words.front()).filename().string();
  return joined(words, " ", [&](const std::string& word) {
    const std::string& text = &word == &words.front() ? program : word;
    if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
    return "'" + replaced(text, "'", "'\\''") + "'";
  });
}

void add_average_option(const Command& command, Index& average) {
  command.option(
      "--average", average,
      "average this many of the last weights kept (train --keep-checkpoints); 0 for the best alone",
      kNotNegative);
}

}  // namespace tapeformer
