#include <tapeformer/autograd/text/json.h>
#include <tapeformer/autograd/text/number_of.h>
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

/// The seconds of a step from each of `starts` on. They take turns, and the median turn counts: whatever
/// else the machine does for a moment slows down a few turns only. Collective.
std::vector<double> TrainingRun::seconds_of_steps(const std::vector<Index>& starts, double longest) {
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

/// On the average of the run, whose batches may change their shape.
double TrainingRun::seconds_a_step(double longest) {
  progress_.show("measuring how fast steps are");
  task_.model().train();
  std::vector<Index> starts = task_.batch_changes();
  starts.insert(starts.begin(), 0);
  const std::vector<double> seconds = seconds_of_steps(starts, longest);
  double per_step = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const Index end = i + 1 < starts.size() ? starts[i + 1] : options_.steps;
    per_step += seconds[i] * static_cast<double>(end - starts[i]) / static_cast<double>(options_.steps);
  }
  return per_step;
}

Index TrainingRun::steps_in_budget() {
  const double budget = 60 * options_.time_budget;
  Json task_before;
  task_.save_state(task_before);
  const std::vector<std::uint64_t> counters = model_counters();
  std::vector<Tensor> values;
  parallel_.with_whole_values([&] {
    for (const Parameter& parameter : task_.model().parameters()) values.push_back(parameter.value().clone());
  });

  const double per_step = seconds_a_step(std::min(kLongestTrial, kTrialShare * budget));
  const double validation_begun = now_seconds();
  task_.validate(progress_);
  const auto ranks = static_cast<double>(control_.ranks->size());
  const double validation = control_.ranks->sum({now_seconds() - validation_begun})[0] / ranks;

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

  // The last step's validation and the one of the best weights come whatever the number of steps.
  const double gone = control_.ranks->sum({clock_.total()})[0] / ranks;
  const double left = (1 - kReserve) * budget - gone - 2 * validation;
  const double whole_step = per_step + validation / static_cast<double>(options_.validate_every);
  const auto steps = std::max<Index>(1, static_cast<Index>(left / whole_step));
  progress_.keep(format("%g min are enough for ", options_.time_budget) + number_of(steps, "step") + " of " +
                 short_duration_text(per_step) + "; the same again, on any machine: --steps " +
                 std::to_string(steps));
  return steps;
}

}  // namespace tapeformer
