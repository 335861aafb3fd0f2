#include <tapeformer/autograd/config/config_json.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/words.h>
#include <tapeformer/examples/shared/ranks.h>
#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/examples/shared/training_run.h>
#include <tapeformer/nn/dropout.h>

#include <omp.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr const char* kBestWeights = "weights.safetensors";
constexpr Index kFewestFirstSteps = 10;  // that tell how long the others take

// What Ctrl-C says.
constexpr const char* kFinishingStep = "finishing this step, then saving; once more leaves without saving";
constexpr const char* kFinishingBatch = "finishing this batch, then saving; once more leaves without saving";
constexpr const char* kFinishingValidation =
    "finishing this validation, then saving; once more leaves without saving";
constexpr const char* kMeasuringFirst =
    "saved; measuring the weights, as there was no validation yet; once more leaves at once";
constexpr const char* kMeasuring =
    "measuring the best weights; once more leaves at once, and --resume measures them";

/// Indents every line of `text`, as the log shows it.
std::string set_in(const std::string& text) {
  std::string result = "  ";
  for (const char c : text) result += c == '\n' ? "\n  " : std::string(1, c);
  return result;
}

}  // namespace

TrainingRun::TrainingRun(RunFolder folder, const TrainingControl& control, TrainingTask& task,
                         Progress& progress, const PhaseClock& clock, const Compute& compute)
    : folder_(std::move(folder)),
      control_(control),
      task_(task),
      progress_(progress),
      clock_(clock),
      compute_(compute),
      options_(task.options()),
      parallel_(control.ranks, trainable(task.model().parameters()),
                {DataParallelConfig().bucket_bytes, control.shard_optimizer}),
      optimizer_(options_.optimizer.make(trainable(task.model().parameters()), task.model().row_parts())),
      average_(options_.average_decay > 0 ? std::make_unique<MovingAverage>(
                                                trainable(task.model().parameters()), options_.average_decay)
                                          : nullptr),
      schedule_(options_.schedule_config()),
      replay_(task.model().state(),
              compute.graphs && control.ranks->size() == 1 ? CudaGraphCache::kMostGraphs : 0),
      profile_(control.profile) {
  optimizer_->set_shards(parallel_);
  if (average_) average_->set_shards(parallel_);
  optimizer_bytes_ = count_optimizer_bytes();
}

void TrainingRun::start(TimePlan plan) {
  plan_ = std::move(plan);
  if (!plan_.step_seconds.empty() && first_steps() >= kFewestFirstSteps) corrects_at_ = first_steps();
  separate_draws(task_.model(), control_.ranks->rank());
  folder_.create();
  task_.describe(folder_);
  save_checkpoint();
  wait_for_checkpoint();
}

void TrainingRun::resume(const Json& checkpoint, Index steps_before) {
  elapsed_before_ = folder_.elapsed();
  restore(checkpoint);  // cuts the lines after its step, whose time is spent all the same
  if (checkpoint.at("threads").get<int>() != omp_get_max_threads()) {
    progress_.keep("note: the run began with " + number_of(checkpoint.at("threads").get<Index>(), "thread") +
                   "; with another number the last bits of the results may differ");
  }
  const std::string began_on = checkpoint.value("device", "cpu"),
                    began_in = checkpoint.value("precision", "f32");
  if (began_on != compute_.device.text() || began_in != compute_.precision) {
    progress_.keep("note: the run went on " + began_on + " in " + began_in + " up to here");
  }
  progress_.keep("resumed at step " + std::to_string(state_.step));
  if (steps_before > 0 && (state_.finished || steps_before != options_.steps)) change_steps(steps_before);
}

void TrainingRun::save_checkpoint() {
  const PhaseClock::Scope scope(clock_, Phase::checkpoints);
  // The last update may have ruined the weights although the loss before it was finite: try them, then save.
  require_finite(control_.ranks->sum({task_.trial_loss(progress_)})[0], "loss after the update");
  progress_.clear();
  progress_.show("writing the checkpoint");
  Json state;
  task_.save_state(state);
  state["threads"] = omp_get_max_threads();
  if (control_.ranks->size() > 1) state["ranks"] = control_.ranks->size();
  state["device"] = compute_.device.text();
  state["precision"] = compute_.precision;
  write_fields(state, fields_of(state_));
  state["tokens"] = tokens_;
  left_out_.erase(std::remove_if(left_out_.begin(), left_out_.end(),
                                 [this](const auto& entry) { return entry.first <= state_.step; }),
                  left_out_.end());
  Json watch;
  write_fields(watch, fields_of(loss_watch_));
  state["guard"] = {{"loss_watch", watch},
                    {"bad_steps", bad_steps_},
                    {"bad_in_a_row", bad_in_a_row_},
                    {"left_out", left_out_}};
  wait_for_checkpoint();
  if (options_.earlier_checkpoints > 0 && checkpointed_step_ >= 0 && checkpointed_step_ < state_.step)
    folder_.keep_checkpoint(checkpointed_step_, options_.earlier_checkpoints);
  const auto visit = [this](OptimizerVisitor& visitor) { visit_state(visitor); };
  parallel_.with_whole_values([&] { saving_ = folder_.save_checkpoint(task_.model(), visit, state); });
  checkpointed_step_ = state_.step;
  progress_.clear();
}

void TrainingRun::visit_state(OptimizerVisitor& visitor) {
  optimizer_->visit_state(visitor);
  if (average_) average_->visit_state(visitor);
}

void TrainingRun::wait_for_checkpoint() {
  const PhaseClock::Scope scope(clock_, Phase::checkpoints);
  if (saving_.valid()) saving_.get();
}

std::string TrainingRun::status(Index step, double loss) const {
  const double now = now_seconds();
  const double per_step = (now - started_) / static_cast<double>(step - first_step_);
  const double left = per_step * static_cast<double>(options_.steps - step);
  return "step " + std::to_string(step) + "/" + std::to_string(options_.steps) +
         format("  loss %.4f  rate %.2e", loss, schedule_(step - 1)) + "  " +
         count_text(static_cast<double>(timed_tokens_) / std::max(1e-9, now - log_started_)) + " tokens/s  " +
         duration_text(left) + " left";
}

void TrainingRun::log_step(QueuedStep& step, bool is_good) {
  if (is_good) {
    state_.logged_loss += *step.loss;
    ++state_.logged_steps;
  }
  if (state_.logged_steps == 0) return;
  const double mean = state_.logged_loss / static_cast<double>(state_.logged_steps);
  const bool is_logged = step.number % options_.log_every == 0 || step.number == options_.steps;
  if (is_logged || progress_.on_terminal()) status_ = status(step.number, mean);
  progress_.show(status_);
  if (!is_logged) return;
  progress_.keep(status_);
  const double seconds = now_seconds() - log_started_;
  Json metrics = {{"step", step.number},
                  {"train_loss", mean},
                  {"learning_rate", schedule_(step.number - 1)},
                  {"gradient_norm", step.is_spike ? Json() : Json(step.norm.item())},
                  {"tokens_per_second", std::round(static_cast<double>(timed_tokens_) / seconds)},
                  {"tokens", tokens_},
                  {"elapsed", elapsed()},
                  {"epoch", step.epoch}};
  if (bad_steps_ > 0) metrics["bad_steps"] = bad_steps_;
  if (control_.ranks->size() > 1)
    metrics["waiting"] =
        waiting_shares(*control_.ranks, control_.ranks->time().waited - logged_waiting_, seconds);
  folder_.append_metrics(metrics);
  if (control_.plot) plotted_.emplace_back(step.number, mean);
  plot();
  state_.logged_loss = 0;
  state_.logged_steps = 0;
  begin_log_line();
}

/// From here on the next line of the log counts tokens, seconds and waiting.
void TrainingRun::begin_log_line() {
  timed_tokens_ = 0;
  log_started_ = now_seconds();
  logged_waiting_ = control_.ranks->time().waited;
}

/// Runs `use` while the model holds the weights that are to be validated and kept.
void TrainingRun::with_evaluation_weights(const std::function<void()>& use) {
  const auto exchange = [this] {
    if (average_ && average_->exchange_weights()) parallel_.gather_values();
  };
  exchange();
  try {
    use();
  } catch (...) {
    exchange();
    throw;
  }
  exchange();
}

void TrainingRun::validate() {
  const double begun = now_seconds(), waited = control_.ranks->time().waited;
  const char* const said_in_steps = say_at_interrupt(kFinishingValidation);
  if (control_.stops()) progress_.keep(kFinishingValidation);  // Ctrl-C came in the step before
  clock_.enter(Phase::validation);
  const Validation result = task_.validate(progress_);
  clock_.enter(Phase::checkpoints);
  require_finite(result.loss, "validation loss");
  const bool better = !state_.has_best || result.loss < state_.best_loss;
  if (better) {
    state_.best_loss = result.loss;
    state_.has_best = true;
    state_.validations_since_best = 0;
    parallel_.with_whole_values([&] { folder_.save_weights(kBestWeights, task_.model()); });
  } else {
    ++state_.validations_since_best;
  }
  if (options_.keep_checkpoints > 0) {
    parallel_.with_whole_values(
        [&] { folder_.keep_weights(task_.model(), state_.step, options_.keep_checkpoints); });
  }
  clock_.enter(Phase::log);
  progress_.keep("step " + std::to_string(state_.step) +
                 format(": validation loss %.4f, perplexity %.3f", result.loss, std::exp(result.loss)) +
                 result.remark + (better ? ", the best so far" : "") + ", after " +
                 duration_text(elapsed_before_ + begun - started_));
  clock_.enter(Phase::samples);
  std::vector<std::string> samples;
  if (options_.samples > 0 && folder_.writes()) samples = task_.samples(compute_.graphs);
  for (const std::string& sample : samples) progress_.keep(set_in(sample));
  if (report_is_due()) show_attention();
  clock_.enter(Phase::log);
  Json metrics = {{"step", state_.step}, {"validation_loss", result.loss}};
  metrics["perplexity"] = std::exp(result.loss);
  for (const auto& [name, number] : result.further) metrics[name] = number;
  metrics["best"] = better;
  metrics["tokens"] = tokens_;
  metrics["elapsed"] = elapsed();
  if (!samples.empty()) metrics["samples"] = samples;
  folder_.append_metrics(metrics);
  if (control_.plot) plotted_validations_.emplace_back(state_.step, result.loss);
  log_started_ += now_seconds() - begun;
  logged_waiting_ += control_.ranks->time().waited - waited;
  say_at_interrupt(said_in_steps);
}

int TrainingRun::run() {
  const auto with_remedy = [&](const Error& error) {
    folder_.check_lock();  // this tells more, and of another remedy
    return error.what() + std::string("; once that is mended, this goes on from the last checkpoint: ") +
           task_.program() + " train --run " + folder_.path() + " --resume";
  };
  try {
    return train();
  } catch (const DataError& error) {
    throw DataError(with_remedy(error));
  } catch (const CheckpointError& error) {
    throw CheckpointError(with_remedy(error));
  }
}

int TrainingRun::train() {
  first_step_ = state_.step;
  begin_log_line();
  started_ = log_started_;
  waiting_before_ = logged_waiting_;
  if (state_.finished && folder_.has_ending(state_.step)) {
    progress_.keep("this training is finished; the best weights are in " + folder_.file(kBestWeights) +
                   "; it goes on with a larger number of --steps");
    return kExitSuccess;
  }
  if (state_.finished) {  // it was ended while it measured
    begin_report();
    return finish();
  }
  task_.model().train();
  begin_report();
  status_ = "step " + std::to_string(state_.step) + "/" + std::to_string(options_.steps);
  say_at_interrupt(options_.accumulate > 1 ? kFinishingBatch : kFinishingStep);
  const Index checkpoint_every =
      options_.checkpoint_every > 0 ? options_.checkpoint_every : options_.validate_every;
  while (true) {
    try {
      if (const std::optional<int> exit_code = advance(checkpoint_every)) return *exit_code;
    } catch (const BadStep& bad) {
      go_back(bad);
    }
  }
}

/// A step and what is due after it; the exit code if the run ends there.
std::optional<int> TrainingRun::advance(Index checkpoint_every) {
  profile_.begin_step();
  const bool is_trained = train_step();
  if (profile_.end_step()) tell_profile();
  if (!is_trained) return stop(false);
  if (state_.step == 1) first_step_end_ = now_seconds();
  if (state_.step == corrects_at_) correct_steps();
  const bool validates = state_.step % options_.validate_every == 0 || state_.step == options_.steps;
  if (validates || state_.step % checkpoint_every == 0) settle();
  if (validates) {
    with_evaluation_weights([this] { validate(); });
    const bool patient = options_.patience == 0 || state_.validations_since_best < options_.patience;
    if (!patient)
      progress_.keep("no better validation for " + number_of(options_.patience, "time") + ": stopped early");
    state_.finished = state_.step >= options_.steps || !patient;
  }
  if (state_.finished || state_.step % checkpoint_every == 0) save_checkpoint();
  if (state_.finished) return finish();
  if (validates && report_is_due()) write_report();
  const bool alone = control_.ranks->size() == 1;
  const bool late = alone ? is_late() : all_late_;
  if (late || (alone ? control_.stops() : all_stop_)) return stop(late);
  return {};
}

void TrainingRun::tell_profile() {
  const PhaseClock::Scope scope(clock_, Phase::log);
  const double begun = now_seconds();
  progress_.show("measuring what this machine does at its best");
  progress_.keep(profile_.text(measure_machine_rates()));
  folder_.write("trace.json", profile_.trace().dump());
  progress_.keep("the timeline is in " + folder_.file("trace.json") +
                 "; chrome://tracing and ui.perfetto.dev show it");
  log_started_ += now_seconds() - begun;
}

bool TrainingRun::is_late() const {
  return control_.max_minutes > 0 && now_seconds() - started_ > 60 * control_.max_minutes;
}

int TrainingRun::stop(bool late) {
  settle();
  if (checkpointed_step_ != state_.step) save_checkpoint();
  wait_for_checkpoint();
  if (!state_.has_best && state_.step > 0) keep_first_weights();
  progress_.keep((late ? "the time limit is reached" : "interrupted") + std::string(" at step ") +
                 std::to_string(state_.step) + "; saved. Go on with: " + task_.program() + " train --run " +
                 folder_.path() + " --resume");
  tell_time({});
  write_report();
  return late ? kExitSuccess : kExitInterrupted;
}

/// Before the first validation, something to work with. The checkpoint does not know of it: a resumed run
/// finds the same best weights as one without a break. Collective.
void TrainingRun::keep_first_weights() {
  const PhaseClock::Scope scope(clock_, Phase::validation);
  progress_.keep(kMeasuringFirst);
  say_at_interrupt(kMeasuringFirst);
  double loss = 0;
  with_evaluation_weights([&] {
    loss = task_.validate(progress_).loss;
    parallel_.with_whole_values([&] { folder_.save_weights(kBestWeights, task_.model()); });
  });
  progress_.keep(format("validation loss %.4f; weights in ", loss) + folder_.file(kBestWeights));
}

int TrainingRun::finish() {
  wait_for_checkpoint();
  say_at_interrupt(kMeasuring);
  const Index trained = state_.step - first_step_;
  progress_.keep((trained > 0 ? "trained " + number_of(trained, first_step_ > 0 ? "more step" : "step") +
                                    " in " + duration_text(now_seconds() - started_) + "; "
                              : "") +
                 format("best validation loss %.4f", state_.best_loss) + "; weights in " +
                 folder_.file(kBestWeights));
  clock_.enter(Phase::validation);
  control_.ranks->barrier();  // rank 0 has written them
  parallel_.with_whole_values([&] { load_weights(folder_.file(kBestWeights), task_.model()); });
  tell_time(task_.conclude(progress_));
  if (folder_.writes()) show_attention();
  write_report();
  return kExitSuccess;
}

/// Writes the last line of metrics.jsonl, in one go: a training that was ended before writes it on resuming.
void TrainingRun::tell_time(Json line) {
  progress_.keep("time: " + clock_.text());
  if (control_.ranks->size() > 1) {
    const CommunicationTime time = control_.ranks->time();
    const auto shares =
        waiting_shares(*control_.ranks, time.waited - waiting_before_, now_seconds() - started_);
    progress_.keep(communication_text(time, shares));
  }
  Json metrics = {{"step", state_.step}, {"elapsed", elapsed()}};
  if (line.is_object()) metrics.update(line);
  metrics["seconds"] = clock_.json();
  if (compute_.device.is_cuda()) {
    progress_.keep(peak_memory_text(compute_.device));
    metrics["device"] = compute_.text();
    const CudaGraphCache::Counts& counts = replay_.counts();
    metrics["graphs"] = {{"captured", counts.captured},
                         {"replayed", counts.replayed},
                         {"queued", counts.run},
                         {"given_up", counts.given_up},
                         {"replayed_in_samples", CudaGraphCache::counts_of_all().replayed - counts.replayed}};
    metrics["peak_device_bytes"] = cuda::memory_statistics(compute_.device.index).peak_bytes;
  }
  folder_.append_metrics(metrics);
}

}  // namespace tapeformer
