#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/tensorboard_log.h>
#include <tapeformer/examples/shared/train_command.h>

#include <memory>

namespace tapeformer {

void TrainCommand::add_to(const Command& command) {
  command.option("--run", run, "the run folder").required();
  command.flag("--resume", resume, "continue from the folder's checkpoint");
  command.flag("--tensorboard", tensorboard,
               "write the numbers of metrics.jsonl as events for TensorBoard too, into the run folder");
  command.option("--max-minutes", control.max_minutes,
                 "save and stop after this many minutes; 0 for no limit", kNotNegative);
  command.flag("--summary", control.summary,
               "print the model's configuration and its parameters, and train nothing");
  command.flag(
      "--shard-optimizer", control.shard_optimizer,
      "of several processes under mpirun, each keeps and updates its share of the optimizer's state");
  command.option("--collective-minutes", control.collective_minutes,
                 "the longest that processes under mpirun wait for each other; 0 for no limit", kNotNegative);
  control.compute.add_to(command);
}

int TrainCommand::execute(
    const Command& command, std::initializer_list<const char*> groups, const TrainingOptions& options,
    const std::function<int(const RunFolder&, const TrainingControl&)>& start_in,
    const std::function<int(const RunFolder&, const TrainingControl&)>& resume_in) const {
  remember_interrupts();
  TrainingControl joined = control;
  joined.ranks = join_launch();
  const bool is_first = joined.ranks->rank() == 0;
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
