#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/train/guard.h>
#include <tapeformer/examples/train/time_budget.h>

#include <algorithm>
#include <utility>

namespace tapeformer {
namespace {

constexpr double kTrialShare = 0.03;     // of the budget, for steps that are only timed
constexpr double kLongestTrial = 15;     // seconds of that
constexpr double kLongestTurn = 0.25;    // seconds that are timed as one
constexpr std::size_t kFewestTurns = 3;  // of which the first also fills caches and pools, and is left out
constexpr double kReserve = 0.015;       // of the budget, for what is not timed here: the log, files, samples
constexpr Index kFewestFirstSteps = 10;  // that tell how long the others take

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Where steps whose batches have the same shape begin, and the end of the last ones.
std::vector<Index> bounds_of_shapes(const TrainingTask& task) {
  std::vector<Index> bounds = task.batch_changes();
  bounds.insert(bounds.begin(), 0);
  bounds.push_back(std::max(task.options().steps, bounds.back() + 1));
  return bounds;
}

/// The mean over the ranks, the same for all. Collective.
double mean_of(Communicator& ranks, double value) {
  return ranks.sum({value})[0] / static_cast<double>(ranks.size());
}

/// How a run of as many steps is started, which has the same weights to the bit.
std::string repeat_text(const TrainingOptions& options) {
  return "; the same again, on any machine: --steps " + std::to_string(options.steps) + " --warmup " +
         std::to_string(options.warmup) + " --validate-every " + std::to_string(options.validate_every);
}

/// How many steps do not depend on how many there are: the rate still rises, and nothing was validated.
Index first_steps(const Session& session) {
  Index count = std::min(session.options.warmup, session.options.validate_every - 1);
  for (const Index step : session.task.batch_changes()) count = std::min(count, step / 2);
  return count;
}

/// The weights and the state of the random draws, to be put back.
class SavedModel {
 public:
  explicit SavedModel(Session& session) : session_(session), draws_(session.draws()) {
    session_.learner.with_whole_values([&] {
      for (const Parameter& parameter : session_.task.model().parameters())
        values_.push_back(parameter.value().clone());
    });
  }
  void restore() const {
    session_.learner.clear_gradients();
    session_.set_draws(draws_);
    session_.learner.with_whole_values([&] {
      std::size_t i = 0;
      for (Parameter& parameter : session_.task.model().parameters()) {
        parameter.value().copy_from(values_[i++]);
        parameter.refresh_shadow();
      }
    });
  }

 private:
  Session& session_;
  const std::vector<std::uint64_t> draws_;
  std::vector<Tensor> values_;
};

}  // namespace

void StepTimer::step(Index first_batch) {
  Session& s = session_;
  const Index batches = s.options.accumulate;
  s.learner.clear_gradients();
  double loss = 0;
  for (Index i = 0; i < batches; ++i) {
    Pass pass = passes_.run(first_batch + i, i + 1 == batches);
    loss = pass.loss.item();
    tokens_ += pass.batch.tokens;
  }
  s.learner.finish_sums();
  AsyncReadback(s.learner.update(0, 1)).item();
  Guard(s, passes_).require_finite(loss, "loss");
}

std::vector<double> StepTimer::measure(double longest) {
  Session& s = session_;
  s.progress.status("measuring how fast steps are");
  s.task.model().train();
  const std::vector<Index> bounds = bounds_of_shapes(s.task);
  const std::size_t shapes = bounds.size() - 1;
  const auto is_over = [&](double begun, double seconds) {  // for all ranks alike
    return s.ranks.sum({now_seconds() - begun > seconds ? 1.0 : 0.0})[0] > 0;
  };
  std::vector<std::vector<double>> turns(shapes);
  std::vector<Index> done(shapes);
  const double turn = std::min(kLongestTurn, longest / static_cast<double>(kFewestTurns * shapes));
  const double begun = now_seconds();
  do {
    for (std::size_t i = 0; i < shapes; ++i) {
      const double turn_begun = now_seconds();
      const Index before = done[i];
      do {
        step(s.batches(bounds[i] + done[i]++ % (bounds[i + 1] - bounds[i])));
      } while (!is_over(turn_begun, turn));
      turns[i].push_back((now_seconds() - turn_begun) / static_cast<double>(done[i] - before));
    }
  } while (turns[0].size() < kFewestTurns || !is_over(begun, longest));
  std::vector<double> medians;
  for (const std::vector<double>& all : turns)
    medians.push_back(mean_of(s.ranks, median({all.begin() + 1, all.end()})));
  return medians;
}

double average_over_run(const TrainingTask& task, const std::vector<double>& seconds) {
  const std::vector<Index> bounds = bounds_of_shapes(task);
  double sum = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    sum += seconds[i] * static_cast<double>(bounds[i + 1] - bounds[i]);
  return sum / static_cast<double>(bounds.back());
}

void fit_steps(Session& session, double seconds, double per_step, double per_validation_token,
               bool is_begun) {
  TrainingTask& task = session.task;
  const auto fitting = [&] {  // depends on the validations, and these on the number of steps
    const double validation = per_validation_token * static_cast<double>(task.validation_tokens(false));
    const double ending = per_validation_token * static_cast<double>(task.validation_tokens(true));
    const double whole_step = per_step + validation / static_cast<double>(task.options().validate_every);
    return std::max(session.step + 1, static_cast<Index>((seconds - validation - ending) / whole_step));
  };
  task.set_steps(fitting(), is_begun);
  task.set_steps(fitting(), is_begun);
  if (fitting() < task.options().steps) task.set_steps(fitting(), is_begun);
  session.take_steps();
}

TimePlan fit_time_budget(Session& session) {
  Session& s = session;
  const double budget = 60 * s.options.time_budget;
  const SavedModel before(s);
  Passes passes(s);
  TimePlan plan;
  plan.step_seconds = StepTimer(s, passes).measure(std::min(kLongestTrial, kTrialShare * budget));
  const double validation_begun = now_seconds();
  s.task.validate(s.progress);
  plan.seconds_per_validation_token = mean_of(s.ranks, now_seconds() - validation_begun) /
                                      static_cast<double>(s.task.validation_tokens(false));
  before.restore();
  const double per_step = average_over_run(s.task, plan.step_seconds);
  fit_steps(s, (1 - kReserve) * budget - mean_of(s.ranks, s.clock.total()), per_step,
            plan.seconds_per_validation_token, false);
  s.progress.log(format("{} min are enough for ", s.options.time_budget) +
                 number_of(s.options.steps, "step") + " of " + short_duration_text(per_step) +
                 repeat_text(s.options));
  return plan;
}

TimeBudget::TimeBudget(Session& session, TimePlan plan) : session_(session), plan_(std::move(plan)) {
  if (!plan_.step_seconds.empty() && first_steps(session) >= kFewestFirstSteps)
    corrects_at_ = first_steps(session);
}

bool TimeBudget::is_due() {
  if (session_.step == 1) first_step_end_ = now_seconds();
  return session_.step == corrects_at_;
}

void TimeBudget::correct(const std::function<void()>& save) {
  Session& s = session_;
  const auto done = static_cast<double>(s.step);
  const double taken = mean_of(s.ranks, (now_seconds() - first_step_end_) / (done - 1));
  const double tried = plan_.step_seconds.front();
  const double per_step = average_over_run(s.task, plan_.step_seconds) * taken / tried;
  const double left = (1 - kReserve) * 60 * s.options.time_budget - mean_of(s.ranks, s.clock.total());
  const Index before = s.options.steps;
  fit_steps(s, left + done * taken, per_step, plan_.seconds_per_validation_token, true);
  if (s.options.steps == before) return;
  s.task.describe(s.folder);
  save();
  s.progress.log("steps take " + short_duration_text(taken) + ", not " + short_duration_text(tried) + ": " +
                 number_of(s.options.steps, "step") + repeat_text(s.options));
}

}  // namespace tapeformer
