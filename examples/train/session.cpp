#include <tapeformer/examples/train/session.h>

namespace tapeformer {

Session::Session(RunFolder run_folder, const TrainingControl& how, TrainingTask& what, Progress& shown,
                 const PhaseClock& since, const Compute& on)
    : folder(std::move(run_folder)),
      control(how),
      task(what),
      progress(shown),
      clock(since),
      compute(on),
      options(what.options()),
      ranks(*control.ranks),
      learner(what.model(), options, control.ranks, how.shard_optimizer),
      schedule(options.schedule_config()) {}

bool Session::is_late() const {
  return control.max_minutes > 0 && now_seconds() - started > 60 * control.max_minutes;
}

void Session::take_steps() {
  options = task.options();
  schedule = Schedule(options.schedule_config());
}

std::vector<std::uint64_t> Session::draws() const {
  std::vector<std::uint64_t> values;
  for (const auto& [name, value] : task.model().named_counters()) values.push_back(*value);
  return values;
}

void Session::set_draws(const std::vector<std::uint64_t>& values) const {
  auto from = values.begin();
  for (const auto& [name, value] : task.model().named_counters()) *value = *from++;
}

}  // namespace tapeformer
