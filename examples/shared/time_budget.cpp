#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/words.h>
#include <tapeformer/examples/shared/training_run.h>

#include <algorithm>
#include <vector>

namespace tapeformer {
namespace {

constexpr double kTrialShare = 0.03;     // of the budget, for steps that are only timed
constexpr double kLongestTrial = 15;     // seconds of that
constexpr double kLongestTurn = 0.25;    // seconds that are timed as one
constexpr std::size_t kFewestTurns = 3;  // of which the first also fills caches and pools, and is left out
constexpr double kReserve = 0.015;       // of the budget, for what is not timed here: the log, files, samples

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// How a run of as many steps is started, which has the same weights to the bit.
std::string repeat_text(const TrainingOptions& options) {
  return "; the same again, on any machine: --steps " + std::to_string(options.steps) + " --warmup " +
         std::to_string(options.warmup) + " --validate-every " + std::to_string(options.validate_every);
}

}  // namespace

/// Trains on the next batch with a learning rate of 0. Collective.
void TrainingRun::trial_step() {
  optimizer_->clear_gradients();
  double loss = 0;
  for (Index part = 0; part < options_.accumulate; ++part) {
    const BatchLoss batch = pass(part + 1 == options_.accumulate);
    loss = AsyncReadback(batch.loss).item();
    timed_tokens_ += batch.tokens;
  }
  double counted = 1;
  if (control_.ranks->size() > 1) agree(counted);
  AsyncReadback(optimizer_->clipped_step(0, 1, options_.clip)).item();
  parallel_.gather_values();
  require_finite(loss, "loss");
}

/// As TimePlan has them. They take turns, and the median turn counts: whatever else the machine does for a
/// moment slows down a few turns only. Collective.
std::vector<double> TrainingRun::seconds_of_steps(double longest) {
  progress_.show("measuring how fast steps are");
  task_.model().train();
  std::vector<Index> starts = task_.batch_changes();
  starts.insert(starts.begin(), 0);
  const auto is_over = [this](double begun, double seconds) {  // for all ranks alike
    return control_.ranks->sum({now_seconds() - begun > seconds ? 1.0 : 0.0})[0] > 0;
  };
  std::vector<std::vector<double>> turns(starts.size());
  const double turn = std::min(kLongestTurn, longest / static_cast<double>(kFewestTurns * starts.size()));
  const double begun = now_seconds();
  do {
    for (std::size_t i = 0; i < starts.size(); ++i) {
      task_.go_to_step(starts[i]);
      const double turn_begun = now_seconds();
      Index steps = 0;
      do {
        trial_step();
        ++steps;
      } while (!is_over(turn_begun, turn));
      turns[i].push_back((now_seconds() - turn_begun) / static_cast<double>(steps));
    }
  } while (turns[0].size() < kFewestTurns || !is_over(begun, longest));
  std::vector<double> medians;
  for (const std::vector<double>& all : turns) medians.push_back(median({all.begin() + 1, all.end()}));
  const auto count = static_cast<double>(control_.ranks->size());
  for (double& seconds : medians) seconds = control_.ranks->sum({seconds})[0] / count;  // the same for all
  return medians;
}

/// The mean over the run, whose batches may change their shape.
double TrainingRun::average_over_run(const std::vector<double>& seconds) const {
  std::vector<Index> starts = task_.batch_changes();
  starts.insert(starts.begin(), 0);
  double per_step = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const Index end = i + 1 < starts.size() ? starts[i + 1] : options_.steps;
    per_step += seconds[i] * static_cast<double>(end - starts[i]) / static_cast<double>(options_.steps);
  }
  return per_step;
}

Index TrainingRun::steps_within(double seconds, double per_step, double per_validation_token) const {
  const double validation = per_validation_token * static_cast<double>(task_.validation_tokens(false));
  const double ending = per_validation_token * static_cast<double>(task_.validation_tokens(true));
  const double whole_step = per_step + validation / static_cast<double>(task_.options().validate_every);
  return std::max(state_.step + 1, static_cast<Index>((seconds - validation - ending) / whole_step));
}

/// Gives the task as many steps as fit, whose validations depend on how many they are.
void TrainingRun::fit_steps(double seconds, double per_step, double per_validation_token, bool is_begun) {
  const auto fitting = [&] { return steps_within(seconds, per_step, per_validation_token); };
  task_.set_steps(fitting(), is_begun);
  task_.set_steps(fitting(), is_begun);
  if (fitting() < task_.options().steps) task_.set_steps(fitting(), is_begun);
  options_ = task_.options();
}

/// How many steps do not depend on how many there are: the rate still rises, and nothing was validated.
Index TrainingRun::first_steps() const {
  Index count = std::min(options_.warmup, options_.validate_every - 1);
  for (const Index step : task_.batch_changes()) count = std::min(count, step / 2);
  return count;
}

/// Steps may be faster or slower than they were when they were tried. Collective.
void TrainingRun::correct_steps() {
  settle();
  const auto ranks = static_cast<double>(control_.ranks->size());
  const auto done = static_cast<double>(state_.step);
  const double taken = (now_seconds() - first_step_end_) / (done - 1);
  const std::vector<double> all = control_.ranks->sum({taken / ranks, clock_.total() / ranks});
  const double tried = plan_.step_seconds.front();
  const double per_step = average_over_run(plan_.step_seconds) * all[0] / tried;
  const double left = (1 - kReserve) * 60 * options_.time_budget - all[1];
  const Index before = options_.steps;
  fit_steps(left + done * all[0], per_step, plan_.seconds_per_validation_token, true);
  if (options_.steps == before) return;
  schedule_ = Schedule(options_.schedule_config());
  task_.describe(folder_);
  save_checkpoint();
  progress_.keep("steps take " + short_duration_text(all[0]) + ", not " + short_duration_text(tried) + ": " +
                 number_of(options_.steps, "step") + repeat_text(options_));
}

TimePlan TrainingRun::fit_budget() {
  const double budget = 60 * options_.time_budget;
  Json task_before;
  task_.save_state(task_before);
  const std::vector<std::uint64_t> counters = model_counters();
  std::vector<Tensor> values;
  parallel_.with_whole_values([&] {
    for (const Parameter& parameter : task_.model().parameters()) values.push_back(parameter.value().clone());
  });

  TimePlan plan;
  plan.step_seconds = seconds_of_steps(std::min(kLongestTrial, kTrialShare * budget));
  const double validation_begun = now_seconds();
  task_.validate(progress_);
  const auto ranks = static_cast<double>(control_.ranks->size());
  plan.seconds_per_validation_token = control_.ranks->sum({now_seconds() - validation_begun})[0] / ranks /
                                      static_cast<double>(task_.validation_tokens(false));

  optimizer_->clear_gradients();
  task_.load_state(task_before);
  set_model_counters(counters);
  parallel_.with_whole_values([&] {
    std::size_t i = 0;
    for (Parameter& parameter : task_.model().parameters()) {
      parameter.value().copy_from(values[i++]);
      parameter.refresh_shadow();
    }
  });

  const double gone = control_.ranks->sum({clock_.total()})[0] / ranks;
  const double per_step = average_over_run(plan.step_seconds);
  fit_steps((1 - kReserve) * budget - gone, per_step, plan.seconds_per_validation_token, false);
  progress_.keep(format("%g min are enough for ", options_.time_budget) + number_of(options_.steps, "step") +
                 " of " + short_duration_text(per_step) + repeat_text(options_));
  return plan;
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

}  // namespace tapeformer
