#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/train/run.h>

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tapeformer {

// The message of Ctrl-C.
constexpr const char* kFinishingStep = "finishing this step, then saving; Ctrl-C again quits without saving";
constexpr const char* kFinishingBatch =
    "finishing this batch, then saving; Ctrl-C again quits without saving";
constexpr const char* kMeasuring =
    "measuring the best weights; Ctrl-C again quits at once, and --resume measures them";

TrainingRun::TrainingRun(Session& session, const TimePlan& plan)
    : session_(session),
      passes_(session_),
      guard_(session_, passes_),
      log_(session_, guard_),
      report_(session_, passes_),
      validator_(session_, guard_, log_, report_),
      profile_(session.control.profile),
      budget_(session_, plan),
      checkpointer(session_, guard_, log_, validator_) {}

int TrainingRun::run() {
  try {
    return train();
  } catch (const BadStep&) {
    checkpointer.wait();
    session_.progress.clear();
    throw;
  } catch (const DataError& error) {
    throw DataError(session_.with_remedy(error));
  } catch (const CheckpointError& error) {
    throw CheckpointError(session_.with_remedy(error));
  }
}

int TrainingRun::train() {
  Session& s = session_;
  s.first_step = s.step;
  s.started = now_seconds();
  const bool is_over = checkpointer.is_finished;
  if (is_over && s.folder.has_ending(s.step) && report_.is_whole()) {
    s.progress.log("this run is finished; the best weights are in " + s.folder.file(kBestWeights) +
                   "; continue it with a larger --steps");
    return kExitSuccess;
  }
  log_.begin();
  report_.begin();
  if (is_over) return finish();  // stopped during its final evaluation or report
  s.task.model().train();
  say_at_interrupt(s.options.accumulate > 1 ? kFinishingBatch : kFinishingStep);
  while (true) {
    profile_.begin_step();
    if (!train_step()) return stop(false);
    if (profile_.end_step()) log_.show_profile(profile_);
    if (budget_.is_due()) {
      log_.flush_pending();
      budget_.correct([this] { checkpointer.save(); });
    }
    const bool validates = validator_.is_due(), saves = checkpointer.is_due();
    if (validates) validator_.validate();
    checkpointer.is_finished = s.step >= s.options.steps || !validator_.is_patient();
    if (checkpointer.is_finished || saves) checkpointer.save();
    if (checkpointer.is_finished) return finish();
    if (validates && report_.is_due()) report_.write();
    const bool late = s.is_late();
    if (late || s.stops()) return stop(late);
  }
}

/// Takes one step of the optimizer. Returns false if the run was stopped before one of its batches; the
/// model's random draws are then as before the step.
bool TrainingRun::train_step() {
  Session& s = session_;
  s.ranks.set_step(s.step + 1);
  s.optimizer->clear_gradients();
  QueuedStep step;
  step.number = s.step + 1;
  Index counted = 0;
  for (Index part = 0; part < s.options.accumulate; ++part) {
    if (s.stops()) {
      if (part > 0) s.set_draws(step.passes[0].draws);
      return false;
    }
    log_.show_batch(part);
    step.passes.push_back(passes_.run(s.batches() + part, part + 1 == s.options.accumulate));
    counted += step.passes.back().batch.counted;
  }
  step.counted = s.sum_over_ranks(counted);
  const double share = passes_.weighs_batches() ? 1 / std::max(1.0, step.counted) : 1;  // 0 without answers
  s.clock.enter(Phase::update);
  if (s.options.loss_spike == "skip") {  // this needs the loss before the update
    log_.read_loss(step);
    step.is_left_out = guard_.leaves_out(step);
  }
  if (!step.is_left_out) {
    if (step.counted > 0) gradient_watch_.see(s);
    step.norm = AsyncReadback(s.update(s.learning_rate(s.step), share));
  }
  ++s.step;
  if (s.step < s.options.steps) {
    s.clock.enter(Phase::batches);
    passes_.prepare(s.batches());
  }
  s.clock.enter(Phase::update);
  log_.push(std::move(step));
  return true;
}

int TrainingRun::stop(bool late) {
  Session& s = session_;
  if (!checkpointer.is_saved()) checkpointer.save();
  checkpointer.wait();
  if (!validator_.has_best() && s.step > 0) validator_.keep_first_weights();
  if (profile_.is_partial()) log_.show_profile(profile_);
  s.progress.log(format("{} at step {}; saved. Continue with: {}",
                        late ? "the time limit is reached" : "interrupted", s.step, s.resume_command()));
  log_.write_summary(Json::object(), passes_);
  report_.write();
  return late ? kExitSuccess : kExitInterrupted;
}

int TrainingRun::finish() {
  Session& s = session_;
  checkpointer.wait();
  if (profile_.is_partial()) log_.show_profile(profile_);
  say_at_interrupt(kMeasuring);
  std::string took;
  if (const Index trained = s.step - s.first_step; trained > 0)
    took = "trained " + number_of(trained, s.first_step > 0 ? "more step" : "step") + " in " +
           duration_text(now_seconds() - s.started) + "; ";
  s.progress.log(took + format("best validation loss {:.4f}; weights in ", validator_.best_loss()) +
                 s.folder.file(kBestWeights));
  s.clock.enter(Phase::validation);
  validator_.load_best_weights();
  log_.write_summary(s.task.conclude(s.progress), passes_);
  report_.show_attention();
  report_.write();
  return kExitSuccess;
}

}  // namespace tapeformer
