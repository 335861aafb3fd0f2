#include <tapeformer/autograd/text/json.h>
#include <tapeformer/autograd/text/number_of.h>
#include <tapeformer/examples/shared/training_run.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr double kTrialShare = 0.01;  // of the budget, for steps that are only timed
constexpr double kReserve = 0.015;    // of the budget, for what is not timed here: the log, files, samples
constexpr Index kMostTrials = 50;

}  // namespace

/// Trains on the next batches with a learning rate of 0; the mean without the first, which also fills caches
/// and pools. Not the median: what slows some steps down will do so later, too. Collective.
double TrainingRun::seconds_of_step(double longest) {
  double begun = now_seconds(), mean = 0;
  for (Index trial = 0; trial <= kMostTrials; ++trial) {
    if (trial == 1) begun = now_seconds();
    optimizer_->clear_gradients();
    double loss = 0;
    for (Index part = 0; part < options_.accumulate; ++part) {
      const BatchLoss batch = pass(part + 1 == options_.accumulate);
      loss = AsyncReadback(batch.loss).item();
    }
    double counted = 1;
    if (control_.ranks->size() > 1) agree(counted);
    AsyncReadback(optimizer_->clipped_step(0, 1, options_.clip)).item();
    parallel_.gather_values();
    require_finite(loss, "loss");
    const double gone = now_seconds() - begun;
    mean = gone / static_cast<double>(std::max<Index>(1, trial));
    const bool is_over = trial > 0 && gone > longest;
    if (control_.ranks->sum({is_over ? 1.0 : 0.0})[0] > 0) break;
  }
  const auto count = static_cast<double>(control_.ranks->size());
  return control_.ranks->sum({mean})[0] / count;  // all ranks must come to the same number
}

Index TrainingRun::steps_in_budget() {
  progress_.show("measuring how fast steps are");
  const double budget = 60 * options_.time_budget;
  Json task_before;
  task_.save_state(task_before);
  const std::vector<std::uint64_t> counters = model_counters();
  std::vector<Tensor> values;
  parallel_.with_whole_values([&] {
    for (const Parameter& parameter : task_.model().parameters()) values.push_back(parameter.value().clone());
  });

  task_.model().train();
  std::vector<Index> starts = task_.batch_changes();
  starts.insert(starts.begin(), 0);
  double per_step = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const Index end = i + 1 < starts.size() ? starts[i + 1] : options_.steps;
    if (end == starts[i]) continue;
    task_.go_to_step(starts[i]);
    const double share = static_cast<double>(end - starts[i]) / static_cast<double>(options_.steps);
    per_step += share * seconds_of_step(kTrialShare * budget / static_cast<double>(starts.size()));
  }
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
  progress_.keep(format("%g min are enough for ", options_.time_budget) + number_of(steps, "step") +
                 format(" of %.3g ms; the same again, on any machine: --steps ", 1e3 * per_step) +
                 std::to_string(steps));
  return steps;
}

}  // namespace tapeformer
