#include <tapeformer/autograd/config/config_json.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/train/checkpointer.h>
#include <tapeformer/nn/dropout.h>

#include <omp.h>
#include <nlohmann/json.hpp>

namespace tapeformer {

void Checkpointer::start() {
  Session& s = session_;
  separate_draws(s.task.model(), s.ranks.rank());
  s.folder.create();
  s.task.describe(s.folder);
  save();
  wait();
}

bool Checkpointer::is_due() const {
  const TrainingOptions& options = session_.options;
  const Index every = options.checkpoint_every > 0 ? options.checkpoint_every : options.validate_every;
  return session_.step % every == 0;
}

void Checkpointer::save() {
  Session& s = session_;
  log_.flush_pending();
  const PhaseClock::Scope scope(s.clock, Phase::checkpoints);
  // The last update may have ruined the weights although the loss before it was finite.
  guard_.require_finite(s.ranks.sum({s.task.trial_loss(s.batches(), s.progress)})[0],
                        "loss after the update");
  s.progress.clear();
  s.progress.status("writing the checkpoint");
  Json state;
  s.task.save_state(state);
  state["threads"] = omp_get_max_threads();
  if (!s.is_alone()) state["ranks"] = s.ranks.size();
  state["device"] = s.compute.device.text();
  state["precision"] = s.compute.precision;
  write_fields(state, fields_of(*this));
  state["tokens"] = log_.tokens();
  state["guard"] = guard_.state();
  wait();
  const Index before = s.checkpointed_step;
  if (s.options.earlier_checkpoints > 0 && before >= 0 && before < s.step)
    s.folder.keep_checkpoint(before, s.options.earlier_checkpoints);
  const auto visit = [&](OptimizerVisitor& visitor) { s.visit_state(visitor); };
  s.parallel.with_whole_values([&] { writing_ = s.folder.save_checkpoint(s.task.model(), visit, state); });
  s.checkpointed_step = s.step;
  s.progress.clear();
}

void Checkpointer::wait() {
  const PhaseClock::Scope scope(session_.clock, Phase::checkpoints);
  if (writing_.valid()) writing_.get();
}

void Checkpointer::resume(const Json& state, Index steps_before) {
  Session& s = session_;
  const auto visit = [&](OptimizerVisitor& visitor) { s.visit_state(visitor); };
  s.parallel.with_whole_values([&] { s.folder.load_checkpoint(s.task.model(), visit); });
  separate_draws(s.task.model(), s.ranks.rank());
  s.task.load_state(state);
  try {
    for (ConfigField& field : fields_of(*this)) read_field(state.at(field.name), field);
  } catch (const Error& error) {
    s.folder.refuse_state(error.what());
  }
  log_.load(state.value("tokens", Index{0}));                   // older checkpoints lack it
  if (state.contains("guard")) guard_.load(state.at("guard"));  // and this
  s.checkpointed_step = s.step;
  s.folder.cut_metrics(s.step);  // the time of the dropped lines still counts
  const auto threads = state.at("threads").get<Index>();
  if (threads != omp_get_max_threads())
    s.progress.log("note: the run began with " + number_of(threads, "thread") +
                   "; with another number the last bits of the results may differ");
  const std::string device = state.value("device", "cpu"), precision = state.value("precision", "f32");
  if (device != s.compute.device.text() || precision != s.compute.precision)
    s.progress.log("note: the run was on " + device + " in " + precision + " up to here");
  s.progress.log("resumed at step " + std::to_string(s.step));
  if (steps_before > 0 && (is_finished || steps_before != s.options.steps)) change_steps(steps_before);
}

/// Continues to options.steps instead, whether or not the run is finished.
void Checkpointer::change_steps(Index before) {
  const Session& s = session_;
  TrainingOptions old = s.options;
  old.steps = before;
  std::string text =
      format("continues to step {}, with the {} schedule of {} steps: the learning rate is {:.2e} at step {}",
             s.options.steps, s.options.schedule, s.options.steps, s.learning_rate(s.step), s.step + 1);
  if (s.step > 0)
    text += format(", and was {:.2e} at step {}", Schedule(old.schedule_config())(s.step - 1), s.step);
  s.progress.log(text);
  is_finished = false;
  validator_.renew_patience();
  s.task.describe(s.folder);
  save();
}

}  // namespace tapeformer
