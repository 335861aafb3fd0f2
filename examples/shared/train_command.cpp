#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/train_command.h>

namespace tapeformer {

void TrainCommand::add_to(const Command& command) {
  command.option("--run", run, "the run folder").required();
  command.flag("--resume", resume, "continue from the folder's checkpoint");
  command.option("--max-minutes", control.max_minutes,
                 "save and stop after this many minutes; 0 for no limit", kNotNegative);
  command.flag("--summary", control.summary,
               "print the model's configuration and its parameters, and train nothing");
  control.compute.add_to(command);
}

int TrainCommand::execute(
    const Command& command, std::initializer_list<const char*> groups, const TrainingOptions& options,
    const std::function<int(const RunFolder&)>& start_in,
    const std::function<int(const RunFolder&, const TrainingControl&)>& resume_in) const {
  remember_interrupts();
  const RunLock lock(run);
  say_at_interrupt(kStopping);
  const RunFolder folder(run);
  if (!resume) return start_in(folder);
  TrainingControl resumed = control;
  resumed.steps = steps_on_resuming(command, groups, options);
  return resume_in(folder, resumed);
}

}  // namespace tapeformer
