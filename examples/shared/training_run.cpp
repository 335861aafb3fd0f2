#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/communication/nccl.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/text/config_json.h>
#include <tapeformer/autograd/text/number_of.h>
#include <tapeformer/autograd/threads.h>
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

// What Ctrl-C says.
constexpr const char* kFinishingStep = "finishing this step, then saving; once more leaves without saving";
constexpr const char* kFinishingBatch = "finishing this batch, then saving; once more leaves without saving";
constexpr const char* kFinishingValidation =
    "finishing this validation, then saving; once more leaves without saving";
constexpr const char* kMeasuring =
    "measuring the best weights; once more leaves at once, and --resume measures them";

/// A task whose model is ready to compute as `compute` says, with the control's ranks; between GPUs these
/// then communicate by NCCL.
std::unique_ptr<TrainingTask> made(const MakeTask& make_task, TrainingControl& control, Compute& compute,
                                   const Json* checkpoint, Progress& progress) {
  if (control.ranks->rank() > 0) progress.be_silent();
  if (*kernels::gemm_warning() != 0) progress.keep(std::string("note: ") + kernels::gemm_warning());
  if (control.ranks->size() > 1)
    progress.keep(number_of(control.ranks->size(), "process", "processes") + " share each batch");
  const std::string note = share_machine(*control.ranks, compute);
  use_threads(static_cast<int>(compute.threads));
  if (!note.empty()) progress.keep(note);
  std::unique_ptr<TrainingTask> task;
  first_rank_first(*control.ranks, [&] { task = make_task(checkpoint, progress); });
  Json state;
  task->save_state(state);
  state["device"] = compute.device.is_cuda() ? "cuda" : "cpu";
  state["precision"] = compute.precision;
  state["shard_optimizer"] = control.shard_optimizer;
  require_same_training(*control.ranks, state);
  const double limit = 60 * control.collective_minutes;
  limit_collectives(limit);
  if (compute.device.is_cuda() && control.ranks->size() > 1)
    control.ranks = nccl_communicator(control.ranks, compute.device.index, limit);
  compute.apply(task->model());
  if (compute.device.is_cuda()) progress.keep(compute.text());
  task->set_ranks(control.ranks);
  return task;
}

int show_summary(TrainingTask& task) {
  if (task.ranks().rank() == 0) print("%s", task.summary());
  return kExitSuccess;
}

}  // namespace

std::string TrainingTask::summary() { return parameters_text(model()); }

Json TrainingTask::conclude(Progress&) { return Json::object(); }

int start_training(const RunFolder& folder, const TrainingControl& control, const MakeTask& make_task) {
  folder.refuse_if_used();
  const PhaseClock clock;
  Progress progress;
  Compute compute = control.compute.chosen();
  TrainingControl joined = control;
  const auto task = made(make_task, joined, compute, nullptr, progress);
  if (control.summary) return show_summary(*task);
  TrainingRun run(folder, joined, *task, progress, clock, compute);
  run.start();
  return run.run();
}

int resume_training(const RunFolder& folder, const TrainingControl& control, const MakeTask& make_task) {
  const PhaseClock clock;
  Progress progress;
  std::unique_ptr<TrainingTask> task;
  std::unique_ptr<TrainingRun> run;
  Json checkpoint = folder.checkpoint_state();
  try {
    Index steps_before = 0;
    if (control.steps != 0) {
      const Index step = checkpoint.at("step").get<Index>();
      if (control.steps <= step) {
        throw Error("--steps must be above " + std::to_string(step) +
                    ", the step that the run has come to; got " + std::to_string(control.steps));
      }
      Json& steps = checkpoint.at("options").at("steps");
      steps_before = steps.get<Index>();
      steps = control.steps;
    }
    Compute compute = control.compute.chosen(checkpoint.value("precision", "f32"));
    TrainingControl joined = control;
    const bool as_many = checkpoint.value("ranks", 1) == joined.ranks->size();
    if (compute.threads == 0 && as_many) compute.threads = checkpoint.at("threads").get<Index>();
    task = made(make_task, joined, compute, &checkpoint, progress);
    if (control.summary) return show_summary(*task);
    run = std::make_unique<TrainingRun>(folder, joined, *task, progress, clock, compute);
    run->resume(checkpoint, steps_before);
  } catch (const Json::exception& error) {
    throw CheckpointError(
        folder.path() +
        ": the checkpoint's state does not fit this program; was the run another program's, or "
        "another version's? (" +
        error.what() + ")");
  }
  return run->run();
}

TrainingRun::TrainingRun(RunFolder folder, const TrainingControl& control, TrainingTask& task,
                         Progress& progress, const PhaseClock& clock, const Compute& compute)
    : folder_(std::move(folder)),
      control_(control),
      task_(task),
      progress_(progress),
      clock_(clock),
      compute_(compute),
      options_(task.options()),
      parallel_(control.ranks, task.model().parameters(),
                {DataParallelConfig().bucket_bytes, control.shard_optimizer}),
      optimizer_(options_.optimizer.make(task.model().parameters())),
      schedule_(options_.schedule_config()),
      replay_(task.model(), compute.graphs && control.ranks->size() == 1 ? CudaGraphCache::kMostGraphs : 0) {
  optimizer_->set_shards(parallel_);
}

void TrainingRun::start() {
  separate_draws(task_.model(), control_.ranks->rank());
  folder_.create();
  task_.describe(folder_);
  save_checkpoint();
}

void TrainingRun::resume(const Json& checkpoint, Index steps_before) {
  folder_.load_checkpoint(task_.model(), *optimizer_);
  separate_draws(task_.model(), control_.ranks->rank());
  task_.load_state(checkpoint);
  for_each_field(state_, [&](const Field& field, auto& member) { checkpoint.at(field.name).get_to(member); });
  if (checkpoint.at("threads").get<int>() != omp_get_max_threads()) {
    progress_.keep("note: the run began with " + number_of(checkpoint.at("threads").get<Index>(), "thread") +
                   "; with another number the last bits of the results may differ");
  }
  const std::string began_on = checkpoint.value("device", "cpu"),
                    began_in = checkpoint.value("precision", "f32");
  if (began_on != compute_.device.text() || began_in != compute_.precision) {
    progress_.keep("note: the run went on " + began_on + " in " + began_in + " up to here");
  }
  checkpointed_step_ = state_.step;
  folder_.cut_metrics(state_.step);
  progress_.keep("resumed at step " + std::to_string(state_.step));
  if (steps_before > 0 && (state_.finished || steps_before != options_.steps)) change_steps(steps_before);
}

/// Goes on to options_.steps instead, whether the run is finished or not.
void TrainingRun::change_steps(Index before) {
  TrainingOptions old = options_;
  old.steps = before;
  const std::string steps = std::to_string(options_.steps), here = std::to_string(state_.step);
  std::string text = "goes on to step " + steps + ", with the " + options_.schedule + " schedule of " +
                     steps + " steps: the learning rate is " + format("%.2e", schedule_(state_.step)) +
                     " at step " + std::to_string(state_.step + 1);
  if (state_.step > 0)
    text += format(", and was %.2e", Schedule(old.schedule_config())(state_.step - 1)) + " at step " + here;
  progress_.keep(text);
  state_.finished = false;
  state_.validations_since_best = 0;
  task_.describe(folder_);
  save_checkpoint();
}

void TrainingRun::save_checkpoint() {
  const PhaseClock::Scope scope(clock_, Phase::checkpoints);
  // The last update may have ruined the weights although the loss before it was finite: try them, then save.
  require_finite(task_.trial_loss(progress_), "loss after the update", state_.step + 1);
  progress_.clear();
  progress_.show("writing the checkpoint");
  Json state;
  task_.save_state(state);
  state["threads"] = omp_get_max_threads();
  if (control_.ranks->size() > 1) state["ranks"] = control_.ranks->size();
  state["device"] = compute_.device.text();
  state["precision"] = compute_.precision;
  write_fields(state, state_);
  folder_.save_checkpoint(task_.model(), *optimizer_, state);
  checkpointed_step_ = state_.step;
  progress_.clear();
}

void TrainingRun::require_finite(double value, const char* name, Index step) {
  if (std::isfinite(value)) return;
  progress_.clear();
  throw Error("step " + std::to_string(step) + ": the " + name + format(" is %g; stopped. ", value) +
              (checkpointed_step_ < 0 ? std::string("Nothing was saved")
                                      : "The checkpoint of step " + std::to_string(checkpointed_step_) +
                                            " in " + folder_.path() + " is unharmed") +
              "; try a lower --learning-rate or a longer --warmup");
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

void TrainingRun::log_step(const QueuedStep& step, double loss) {
  state_.logged_loss += loss;
  ++state_.logged_steps;
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
                  {"tokens_per_second", std::round(static_cast<double>(timed_tokens_) / seconds)},
                  {"epoch", step.epoch}};
  if (control_.ranks->size() > 1) {
    const double waited = control_.ranks->time().waited;
    metrics["waiting"] = waiting_shares(*control_.ranks, waited - logged_waiting_, seconds);
    logged_waiting_ = waited;
  }
  folder_.append_metrics(metrics);
  state_.logged_loss = 0;
  state_.logged_steps = timed_tokens_ = 0;
  log_started_ = now_seconds();
}

void TrainingRun::validate() {
  const double begun = now_seconds();
  const char* const said_in_steps = say_at_interrupt(kFinishingValidation);
  if (control_.stops()) progress_.keep(kFinishingValidation);  // Ctrl-C came in the step before
  clock_.enter(Phase::validation);
  const Validation result = task_.validate(progress_);
  clock_.enter(Phase::checkpoints);
  require_finite(result.loss, "validation loss", state_.step + 1);
  const bool better = !state_.has_best || result.loss < state_.best_loss;
  if (better) {
    state_.best_loss = result.loss;
    state_.has_best = true;
    state_.validations_since_best = 0;
    folder_.save_weights(kBestWeights, task_.model());
  } else {
    ++state_.validations_since_best;
  }
  if (options_.keep_checkpoints > 0) {
    folder_.keep_weights(task_.model(), state_.step, options_.keep_checkpoints);
  }
  clock_.enter(Phase::log);
  Json metrics = {{"step", state_.step}, {"validation_loss", result.loss}};
  metrics["perplexity"] = std::exp(result.loss);
  for (const auto& [name, number] : result.further) metrics[name] = number;
  metrics["best"] = better;
  folder_.append_metrics(metrics);
  progress_.keep("step " + std::to_string(state_.step) +
                 format(": validation loss %.4f, perplexity %.3f", result.loss, std::exp(result.loss)) +
                 result.remark + (better ? ", the best so far" : "") + ", after " +
                 duration_text(begun - started_));
  clock_.enter(Phase::samples);
  if (options_.samples > 0 && folder_.writes()) task_.show_samples(progress_, compute_.graphs);
  clock_.enter(Phase::log);
  log_started_ += now_seconds() - begun;
  say_at_interrupt(said_in_steps);
}

int TrainingRun::run() {
  first_step_ = state_.step;
  started_ = log_started_ = now_seconds();
  if (state_.finished && folder_.has_ending(state_.step)) {
    progress_.keep("this training is finished; the best weights are in " + folder_.file(kBestWeights) +
                   "; it goes on with a larger number of --steps");
    return kExitSuccess;
  }
  if (state_.finished) return finish();  // it was ended while it measured
  task_.model().train();
  status_ = "step " + std::to_string(state_.step) + "/" + std::to_string(options_.steps);
  say_at_interrupt(options_.accumulate > 1 ? kFinishingBatch : kFinishingStep);
  const Index checkpoint_every =
      options_.checkpoint_every > 0 ? options_.checkpoint_every : options_.validate_every;
  while (true) {
    if (!train_step()) return stop(false);
    const bool validates = state_.step % options_.validate_every == 0 || state_.step == options_.steps;
    if (validates || state_.step % checkpoint_every == 0) settle();
    if (validates) {
      validate();
      const bool patient = options_.patience == 0 || state_.validations_since_best < options_.patience;
      if (!patient)
        progress_.keep("no better validation for " + number_of(options_.patience, "time") +
                       ": stopped early");
      state_.finished = state_.step >= options_.steps || !patient;
    }
    if (state_.finished || state_.step % checkpoint_every == 0) save_checkpoint();
    if (state_.finished) return finish();
    const bool alone = control_.ranks->size() == 1;
    const bool late = alone ? is_late() : all_late_;
    if (late || (alone ? control_.stops() : all_stop_)) return stop(late);
  }
}

bool TrainingRun::is_late() const {
  return control_.max_minutes > 0 && now_seconds() - started_ > 60 * control_.max_minutes;
}

int TrainingRun::stop(bool late) {
  settle();
  if (checkpointed_step_ != state_.step) save_checkpoint();
  progress_.keep((late ? "the time limit is reached" : "interrupted") + std::string(" at step ") +
                 std::to_string(state_.step) + "; saved. Go on with: " + task_.program() + " train --run " +
                 folder_.path() + " --resume" +
                 (state_.has_best ? std::string()
                                  : std::string(" (there was no validation yet, so there is nothing to ") +
                                        task_.purpose() + " with)"));
  tell_time({});
  return late ? kExitSuccess : kExitInterrupted;
}

int TrainingRun::finish() {
  say_at_interrupt(kMeasuring);
  const Index trained = state_.step - first_step_;
  progress_.keep((trained > 0 ? "trained " + number_of(trained, first_step_ > 0 ? "more step" : "step") +
                                    " in " + duration_text(now_seconds() - started_) + "; "
                              : "") +
                 format("best validation loss %.4f", state_.best_loss) + "; weights in " +
                 folder_.file(kBestWeights));
  clock_.enter(Phase::validation);
  control_.ranks->barrier();  // rank 0 has written them
  load_weights(folder_.file(kBestWeights), task_.model());
  tell_time(task_.conclude(progress_));
  return kExitSuccess;
}

/// Writes the last line of metrics.jsonl, in one go: a training that was ended before writes it on resuming.
void TrainingRun::tell_time(Json line) {
  progress_.keep("time: " + clock_.text());
  if (control_.ranks->size() > 1) {
    const CommunicationTime time = control_.ranks->time();
    const auto shares = waiting_shares(*control_.ranks, time.waited, now_seconds() - started_);
    progress_.keep(communication_text(time, shares));
  }
  Json metrics = {{"step", state_.step}};
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
