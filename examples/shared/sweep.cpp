#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/report/run_record.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/sweep.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>

namespace tapeformer {
namespace {

constexpr const char* kSweepHelp =
    R"( sweep --runs runs/rates --vary learning-rate 1e-3 3e-3 --vary width 64 128 -- --steps 500

Everything after -- is passed to train: the data, the preset, the number of steps. Each combination with
each seed is a run of its own in FOLDER/COMBINATION/seed-N, one after the other. Ctrl-C saves and stops;
the same command continues, skips finished runs, and adds runs if --seeds is higher.

The table has the loss of the best weights (mean and standard error over the seeds), the time of a run,
and p: how likely it is that two equal combinations differ as much as this one does from the first
(Welch's t test). With p above 0.05 a difference may be luck. Compare at equal cost: with the same --steps,
or the same --time-budget.
)";

/// One run of `train`.
struct SweepRun {
  SweepCase combination;
  std::string seed, folder, log;
  double loss = std::nan(""), seconds = 0;

  /// Reads the state of the folder; the loss only if the run has ended.
  void read() {
    if (!std::filesystem::exists(RunFolder(folder).file("metrics.jsonl"))) return;
    const RunRecord record = read_run(folder);
    seconds = RunFolder(folder).elapsed();
    const bool has_ended = std::any_of(record.metrics.begin(), record.metrics.end(), [](const Json& line) {
      return line.contains("best_loss") || line.contains("best_estimated_loss");
    });
    if (has_ended) loss = best_loss_of(record);
  }
  bool has_ended() const { return !std::isnan(loss); }
};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The square of the standard error of the mean.
double squared_error_of(const std::vector<double>& values) {
  const double mean = mean_of(values), count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum / (count - 1) / count;
}

/// Runs this program with these words, appends its output to the log, and returns its exit code. Passes an
/// interrupt on.
int run_again(std::vector<std::string> words, const std::string& log) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666), STDOUT_FILENO);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    execv("/proc/self/exe", pointers.data());
    _exit(kExitBadInput);
  }
  if (child < 0) throw DataError(log, 0, "no run can be started: " + system_error_text(errno));
  int status = 0;
  for (bool told = false; waitpid(child, &status, WNOHANG) == 0;) {
    if (interrupted() && !told) told = kill(child, SIGTERM) == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string folder_name(std::string text) {
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

std::string last_line_of(const std::string& log) {
  std::string text = read_file(log);
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.find_last_of("\r\n") + 1);
}

/// The rows of the table, and the combination with the lowest mean loss.
std::pair<std::string, const SweepCase*> table_of(const std::vector<SweepCase>& cases,
                                                  const std::vector<SweepRun>& runs) {
  std::string table =
      "| combination | seeds | mean loss | standard error | time | p |\n| --- | ---: | ---: | ---: | ---: | "
      "---: |\n";
  std::vector<double> first;
  const SweepCase* best = nullptr;
  double least = 0;
  for (const SweepCase& combination : cases) {
    std::vector<double> losses, seconds;
    for (const SweepRun& run : runs) {
      if (run.combination.name != combination.name || !run.has_ended()) continue;
      losses.push_back(run.loss);
      seconds.push_back(run.seconds);
    }
    if (losses.empty()) continue;
    if (best == nullptr) first = losses;
    const double mean = mean_of(losses),
                 error = losses.size() > 1 ? std::sqrt(squared_error_of(losses)) : NAN;
    const double p = best == nullptr ? NAN : welch_probability(first, losses);
    const auto cell = [](const char* pattern, double value) {
      return std::isnan(value) ? std::string() : format(pattern, value);
    };
    table += format("| {} | {} | {:.4f} | {} | {} | {} |\n", combination.name, losses.size(), mean,
                    cell("{:.4f}", error), duration_text(mean_of(seconds)), cell("{:.2g}", p));
    if (best == nullptr || mean < least) best = &combination, least = mean;
  }
  return {table, best};
}

}  // namespace

std::vector<SweepCase> sweep_cases(const std::vector<std::string>& words) {
  std::vector<SweepCase> cases(1);
  std::set<std::string> names;
  for (auto word = words.begin(); word != words.end();) {
    if (word->rfind("--vary=", 0) == 0)
      throw Error("--vary needs a space after it; try --vary learning-rate 1e-3 3e-3");
    if (*word++ != "--vary") continue;
    const auto end =
        std::find_if(word, words.end(), [](const std::string& text) { return text.rfind("--", 0) == 0; });
    if (end - word < 2)
      throw Error("--vary needs an option and its values; try --vary learning-rate 1e-3 3e-3");
    if (!names.insert(*word).second) throw Error("--vary " + *word + " is given twice; join their values");
    std::vector<SweepCase> longer;
    for (const SweepCase& begun : cases) {
      for (auto value = word + 1; value != end; ++value) {
        const auto same = std::find_if(word + 1, value, [&](const std::string& other) {
          return folder_name(other) == folder_name(*value);
        });
        if (same != value)
          throw Error(format("--vary {} has the value {} twice{}; leave one out", *word, *value,
                             *same == *value ? "" : ", since a folder's name has _ for /"));
        SweepCase& added = longer.emplace_back(begun);
        added.name += (begun.name.empty() ? "" : ",") + *word + "=" + *value;
        added.options.push_back("--" + *word + "=" + *value);
      }
    }
    cases = longer;
    word = end;
  }
  return cases;
}

double welch_probability(const std::vector<double>& first, const std::vector<double>& second) {
  if (std::min(first.size(), second.size()) < 2) return NAN;
  const double a = squared_error_of(first), b = squared_error_of(second);
  if (a + b == 0) return NAN;
  const double t = std::abs(mean_of(first) - mean_of(second)) / std::sqrt(a + b);
  const double freedom =
      (a + b) * (a + b) /
      (a * a / static_cast<double>(first.size() - 1) + b * b / static_cast<double>(second.size() - 1));
  // With x = sqrt(freedom) tan(angle) the density of Student's t distribution is a power of the cosine.
  const double scale =
      std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2)) / std::sqrt(std::acos(-1.0));
  constexpr int kParts = 2000;
  const double begin = std::atan(t / std::sqrt(freedom)), width = (std::acos(0.0) - begin) / kParts;
  double tail = 0;
  for (int i = 0; i < kParts; ++i) tail += std::pow(std::cos(begin + (i + 0.5) * width), freedom - 1) * width;
  return std::min(1.0, 2 * scale * tail);
}

SweepCommand::SweepCommand(CommandLine& line, int argc, const char* const* argv, const TrainCommand& train)
    : train_(train) {
  const char* const* const all = argv + argc;
  const bool is_chosen = argc > 1 && argv[1] == std::string("sweep");
  const char* const* const end = is_chosen ? std::find(argv, all, std::string("--")) : all;
  own_words_ = static_cast<int>(end - argv);
  words_.assign(argv, end);
  options_.assign(end == all ? all : end + 1, all);
  const Command command =
      line.command("sweep", "train with every combination of some options, and compare the losses",
                   [this](const Command&) { return execute(); });
  command.required("--runs", runs_, "the folder for the run folders");
  command.option("--seeds", seeds_, "seeds of each combination: 1, 2, ...", kPositive);
  command.option("--vary", varied_, "an option of train, without dashes, and its values; may be repeated")
      .required();
  command.footer("Example:\n  " + std::filesystem::path(argv[0]).filename().string() + kSweepHelp);
}

/// Throws: Error or DataError with the message of a failed run
int SweepCommand::execute() const {
  remember_interrupts();
  signal(SIGCHLD, SIG_DFL);  // where it was ignored, runs would leave no exit codes
  say_at_interrupt(kStopping);
  const std::vector<SweepCase> cases = sweep_cases(words_);
  for (const std::string& word : options_)
    require(find_invalid_utf8(word) == word.npos, "options of a sweep must be in UTF-8; got " + word);
  std::vector<std::string> given = options_;
  for (const SweepCase& combination : cases)
    given.insert(given.end(), combination.options.begin(), combination.options.end());
  for (const std::string& word : given)
    for (const char* own : {"--run", "--seed", "--resume", "--summary", "--dry-run"})
      require(word.substr(0, word.find('=')) != own,
              format("{} has no place in a sweep, which trains each of --seeds in a folder of its own", own));
  make_folder(runs_);
  const std::string known = runs_ + "/options.json", options = Json(options_).dump();
  const bool is_new = !std::filesystem::exists(known);
  if (is_new) write_atomically(known, options);
  if (const std::string before = read_file(known); before != options)
    throw DataError(runs_, 0, "holds runs with other options: " + before + "; use another --runs");

  const auto say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  std::vector<SweepRun> runs;
  for (Index seed = 1; seed <= seeds_; ++seed) {
    for (const SweepCase& combination : cases) {
      const std::string folder = format("{}/{}/seed-{}", runs_, folder_name(combination.name), seed);
      runs.push_back({combination, std::to_string(seed), folder, folder + ".log"});
      runs.back().read();
    }
  }
  std::size_t ended = 0, failed = 0;  // a run may fail, at too high a learning rate say; the others continue
  for (SweepRun& run : runs) {
    if (!run.has_ended() && !interrupted()) {
      std::vector<std::string> words = {"--seed", run.seed};
      for (const auto& more : {options_, run.combination.options})
        words.insert(words.end(), more.begin(), more.end());
      const bool resumes = RunFolder(run.folder).has_checkpoint();
      if (resumes) words = train_.for_resuming(words);
      words.insert(words.begin(), {words_.front(), "train", "--run", run.folder});
      if (resumes) words.push_back("--resume");
      make_folder(std::filesystem::path(run.folder).parent_path());
      const int code = run_again(words, run.log);
      if (code != kExitSuccess && code != kExitInterrupted) {
        const DataError failure(run.log, 0,
                                format("the run ended with exit code {}: ", code) + last_line_of(run.log));
        if (!RunFolder(run.folder).has_checkpoint()) {  // its options may be wrong
          if (is_new && &run == &runs.front()) std::filesystem::remove(known);
          throw failure;
        }
        say(failure.what());
        ++failed;
        continue;
      }
      run.read();
      if (run.has_ended())
        say(format("{}, seed {}: {:.4f} in {}", run.combination.name, run.seed, run.loss,
                   duration_text(run.seconds)));
    }
    ended += run.has_ended() ? 1 : 0;
  }
  const auto [table, best] = table_of(cases, runs);
  print("{}", table);
  if (best != nullptr) {
    std::vector<std::string> words = {words_.front(), "train", "--run", "RUN"};
    for (const auto& more : {options_, best->options}) words.insert(words.end(), more.begin(), more.end());
    print("\nbest: {}\n  {}\n", best->name, command_text(words));
  }
  if (ended == runs.size()) return kExitSuccess;
  if (const std::size_t left = runs.size() - ended - failed; left > 0)
    say(format("{} of {} runs are left: the same command continues", left, runs.size()));
  if (failed > 0)
    say(format("{} of {} runs failed: the same command repeats only their last steps", failed, runs.size()));
  return failed > 0 ? kExitBadInput : kExitInterrupted;
}

}  // namespace tapeformer
