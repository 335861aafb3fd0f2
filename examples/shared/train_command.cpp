#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/report/tensorboard_log.h>
#include <tapeformer/examples/shared/train_command.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace tapeformer {
namespace {

/// The groups of options that determine a run's results.
constexpr std::initializer_list<const char*> kGroupsOfRun = {"Preset", "Data", "Vocabulary", "Model",
                                                             "Training"};

/// Starts in a temporary folder, into which the tokens of a corpus are written.
int start_dry(const TrainIn& start_in, const std::string& run, const TrainingControl& joined) {
  if (joined.ranks->size() > 1) throw Error("--dry-run measures one process; leave out mpirun or --dry-run");
  RunFolder(run).refuse_if_used();
  const ScratchFolder folder;
  // Ctrl-C must not wait: there is nothing to save, and a step may take minutes.
  std::thread([path = folder.path()] {
    while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
    _exit(kExitInterrupted);
  }).detach();
  return start_in(RunFolder(folder.path()), joined);
}

}  // namespace

TrainCommand::TrainCommand(CommandLine& line, int argc, const char* const* argv,
                           const TrainingOptions& options, TrainIn start_in, TrainIn resume_in)
    : command_(line.command("train", "train a model in a run folder; Ctrl-C saves and stops",
                            [this](const Command&) { return execute(); })),
      options_(options),
      start_in_(std::move(start_in)),
      resume_in_(std::move(resume_in)) {
  control_.command = command_text({argv, argv + argc});
  command_.required("--run", run_, "the run folder");
  command_.flag("--resume", resume_, "continue from the folder's checkpoint");
  command_.flag("--tensorboard", tensorboard_,
                "also write the values of metrics.jsonl as events for TensorBoard, into the run folder");
  command_.option("--max-minutes", control_.max_minutes,
                  "save and stop after this many minutes; 0 for no limit", kNotNegative);
  command_.flag(
      "--summary", control_.summary,
      "print the model's configuration, its parameters, and the FLOPs and bytes of its parts; train nothing");
  command_.option("--profile", control_.profile,
                  "time the operations of this many steps, from the third on: a table of time, FLOP/s and "
                  "bytes per second, and a timeline in trace.json; 0 for none",
                  kNotNegative);
  const CommandOption dry =
      command_.flag("--dry-run", control_.dry_run,
                    "estimate the run's memory and time from a few steps, and write nothing");
  for (const char* other : {"--resume", "--summary", "--profile"}) dry.excludes(command_.find(other));
  command_.flag("--plot", control_.plot, "draw the losses below the log, on a terminal");
  command_.flag("--shard-optimizer", control_.shard_optimizer,
                "under mpirun, each process keeps and updates its share of the optimizer's state");
  command_.option("--collective-minutes", control_.collective_minutes,
                  "the longest that processes under mpirun wait for each other; 0 for no limit",
                  kNotNegative);
  control_.compute.add_to(command_, true, ", or on resuming as before");
}

std::vector<std::string> TrainCommand::for_resuming(const std::vector<std::string>& words) const {
  std::vector<std::string> kept;
  bool is_kept = false;
  for (const std::string& word : words) {
    if (word.rfind("--", 0) == 0) is_kept = !command_.has(word.substr(0, word.find('=')), kGroupsOfRun);
    if (is_kept) kept.push_back(word);
  }
  return kept;
}

int TrainCommand::execute() const {
  remember_interrupts();
  TrainingControl joined = control_;
  joined.ranks = join_launch();
  const bool is_first = joined.ranks->rank() == 0;
  if (control_.dry_run) return start_dry(start_in_, run_, joined);
  std::shared_ptr<const RunLock> lock;
  if (is_first) lock = std::make_shared<RunLock>(run_);
  say_at_interrupt(kStopping);
  RunFolder folder(run_, is_first, lock);
  if (tensorboard_ && is_first) folder.write_events(std::make_shared<TensorBoardLog>(run_));
  if (!resume_) return start_in_(folder, joined);
  for (const std::string& name : command_.given_of(kGroupsOfRun))
    if (name != "--steps")
      throw Error("--resume continues with the options of the run; " + name +
                  " cannot be changed, only --steps: start again in another folder");
  if (command_.find("--steps").given()) joined.steps = options_.steps;
  return resume_in_(folder, joined);
}

}  // namespace tapeformer
