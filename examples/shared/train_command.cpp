#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/report/tensorboard_log.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/train_command.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace tapeformer {
namespace {

/// Starts in a temporary folder: the data of a corpus are written there.
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

void TrainCommand::add_to(const Command& command) {
  command.option("--run", run, "the run folder").required().not_empty();
  command.flag("--resume", resume, "continue from the folder's checkpoint");
  command.flag("--tensorboard", tensorboard,
               "also write the values of metrics.jsonl as events for TensorBoard, into the run folder");
  command.option("--max-minutes", control.max_minutes,
                 "save and stop after this many minutes; 0 for no limit", kNotNegative);
  command.flag(
      "--summary", control.summary,
      "print the model's configuration, its parameters, and the FLOPs and bytes of its parts; train nothing");
  command.option("--profile", control.profile,
                 "time the operations of this many steps, from the third on: a table of time, FLOP/s and "
                 "bytes per second, and a timeline in trace.json; 0 for none",
                 kNotNegative);
  const CommandOption dry = command.flag(
      "--dry-run", control.dry_run, "estimate the run's memory and time from a few steps, and write nothing");
  for (const char* other : {"--resume", "--summary", "--profile"}) dry.excludes(command.find(other));
  command.flag("--plot", control.plot, "draw the losses below the log, on a terminal");
  command.flag("--shard-optimizer", control.shard_optimizer,
               "under mpirun, each process keeps and updates its share of the optimizer's state");
  command.option("--collective-minutes", control.collective_minutes,
                 "the longest that processes under mpirun wait for each other; 0 for no limit", kNotNegative);
  control.compute.add_to(command, true, ", or on resuming as before");
}

int TrainCommand::execute(const Command& command, std::initializer_list<const char*> groups,
                          const TrainingOptions& options, const TrainIn& start_in,
                          const TrainIn& resume_in) const {
  remember_interrupts();
  TrainingControl joined = control;
  joined.ranks = join_launch();
  const bool is_first = joined.ranks->rank() == 0;
  if (control.dry_run) return start_dry(start_in, run, joined);
  std::shared_ptr<const RunLock> lock;
  if (is_first) lock = std::make_shared<RunLock>(run);
  say_at_interrupt(kStopping);
  RunFolder folder(run, is_first, lock);
  if (tensorboard && is_first) folder.write_events(std::make_shared<TensorBoardLog>(run));
  if (!resume) return start_in(folder, joined);
  joined.steps = steps_on_resuming(command, groups, options);
  return resume_in(folder, joined);
}

}  // namespace tapeformer
