#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/report/run_record.h>
#include <tapeformer/examples/train/guard.h>
#include <tapeformer/examples/train/run_report.h>
#include <tapeformer/examples/train/time_budget.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr double kTrialShare = 0.03;     // of the budget, for steps that are only timed
constexpr double kLongestTrial = 15;     // seconds for these steps at most
constexpr double kLongestTurn = 0.25;    // seconds of steps that are timed together
constexpr std::size_t kFewestTurns = 3;  // the first turn, which fills caches and pools, does not count
constexpr double kReserve = 0.015;       // of the budget, for untimed work: the log, files, samples
constexpr Index kFewestFirstSteps = 10;  // to predict the duration of the others from
constexpr double kMostSteps = 1e12;      // for budgets without a practical limit
constexpr double kDryRunTrial = 3;       // seconds for timing steps; a longer step is timed in parts

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The first steps of each shape of batches, and the end of the last ones.
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

/// The options by which another run gets the same weights to the last bit.
std::string repeat_text(const TrainingOptions& options) {
  return "; the same again, on any machine: --steps " + std::to_string(options.steps) + " --warmup " +
         std::to_string(options.warmup) + " --validate-every " + std::to_string(options.validate_every);
}

/// The number of first steps that do not depend on their total: the rate still rises, and nothing was
/// validated.
Index first_steps(const Session& session) {
  Index count = std::min(session.options.warmup, session.options.validate_every - 1);
  for (const Index step : session.task.batch_changes()) count = std::min(count, step / 2);
  return count;
}

/// Returns a function that restores the present weights and random draws.
std::function<void()> saved_model(Session& session) {
  std::vector<Tensor> values;
  session.parallel.with_whole_values([&] {
    for (const Parameter& parameter : session.task.model().parameters())
      values.push_back(parameter.value().clone());
  });
  return [&session, values, draws = session.draws()] {
    session.optimizer->clear_gradients();
    session.set_draws(draws);
    session.parallel.with_whole_values([&] {
      std::size_t i = 0;
      for (Parameter& parameter : session.task.model().parameters()) {
        parameter.value().copy_from(values[i++]);
        parameter.refresh_shadow();
      }
    });
  };
}

/// Takes a step with a learning rate of 0. Returns the tokens in it, on this rank.
Index trial_step(Session& s, Passes& passes, Index first_batch) {
  const Index batches = s.options.accumulate;
  s.optimizer->clear_gradients();
  double loss = 0;
  Index tokens = 0;
  for (Index i = 0; i < batches; ++i) {
    Pass pass = passes.run(first_batch + i, i + 1 == batches);
    loss = pass.loss.item();
    tokens += pass.batch.tokens;
  }
  s.parallel.finish();
  AsyncReadback(s.update(0, 1)).item();
  Guard(s, passes).require_finite(loss, "loss");
  return tokens;
}

/// Measures the seconds of a step from 0 on, and from each of batch_changes() on, in about `longest` seconds,
/// and adds the tokens in these steps to `tokens`. Several shapes of batches are measured in turn, and the
/// median turn counts: a moment in which the machine does something else slows down only a few turns.
/// Collective.
std::vector<double> measured_steps(Session& s, Passes& passes, double longest, Index& tokens) {
  s.progress.status("measuring how fast steps are");
  s.task.model().train();
  const std::vector<Index> bounds = bounds_of_shapes(s.task);
  const std::size_t shapes = bounds.size() - 1;
  const auto is_over = [&](double begun, double seconds) {  // the same for all ranks
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
        tokens += trial_step(s, passes, s.batches(bounds[i] + done[i]++ % (bounds[i + 1] - bounds[i])));
      } while (!is_over(turn_begun, turn));
      turns[i].push_back((now_seconds() - turn_begun) / static_cast<double>(done[i] - before));
    }
  } while (turns[0].size() < kFewestTurns || !is_over(begun, longest));
  std::vector<double> medians;
  for (const std::vector<double>& all : turns)
    medians.push_back(mean_of(s.ranks, median({all.begin() + 1, all.end()})));
  return medians;
}

/// The mean duration of a step over the run, whose batches may change their shape.
double average_over_run(const TrainingTask& task, const std::vector<double>& seconds) {
  const std::vector<Index> bounds = bounds_of_shapes(task);
  double sum = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    sum += seconds[i] * static_cast<double>(bounds[i + 1] - bounds[i]);
  return sum / static_cast<double>(bounds.back());
}

/// Gives the task as many steps as fit into `seconds`, with their validations.
void fit_steps(Session& session, double seconds, double per_step, double per_validation_token,
               bool is_begun) {
  TrainingTask& task = session.task;
  Index least = session.step + 1;
  if (is_begun && has_end(task.options().schedule)) least = std::max(least, task.options().warmup + 1);
  // The present step and the next one, whose batch is made ahead, must keep the shape of their batches.
  if (const std::vector<Index> changes = task.batch_changes(); is_begun && !changes.empty()) {
    const Index first = changes.front();
    least = std::max(least, ((session.step + 1) * task.options().steps + first - 1) / first);
  }
  const auto fitting = [&] {  // depends on the validations, and these on the number of steps
    const double validation = per_validation_token * static_cast<double>(task.validation_tokens(false));
    const double ending = per_validation_token * static_cast<double>(task.validation_tokens(true));
    const double whole_step = per_step + validation / static_cast<double>(task.options().validate_every);
    const double steps = std::min(kMostSteps, (seconds - validation - ending) / whole_step);
    return std::max(least, static_cast<Index>(steps));
  };
  task.set_steps(fitting(), is_begun);
  task.set_steps(fitting(), is_begun);
  if (fitting() < task.options().steps) task.set_steps(fitting(), is_begun);
  task.options().check();  // the warm-up may have been given
}

}  // namespace

TimePlan fit_time_budget(Session& session) {
  Session& s = session;
  const double budget = 60 * s.options.time_budget;
  const std::function<void()> restore = saved_model(s);
  Passes passes(s);
  TimePlan plan;
  Index tokens = 0;
  const std::vector<double> seconds =
      measured_steps(s, passes, std::min(kLongestTrial, kTrialShare * budget), tokens);
  plan.first_step_seconds = seconds.front();
  plan.mean_step_seconds = average_over_run(s.task, seconds);
  const double validation_begun = now_seconds();
  s.task.validate(s.progress);
  plan.seconds_per_validation_token = mean_of(s.ranks, now_seconds() - validation_begun) /
                                      static_cast<double>(s.task.validation_tokens(false));
  restore();
  s.parallel.gather_for_another();
  fit_steps(s, (1 - kReserve) * budget - mean_of(s.ranks, s.clock.total()), plan.mean_step_seconds,
            plan.seconds_per_validation_token, false);
  s.progress.log(format("{:g} min are enough for ", s.options.time_budget) +
                 number_of(s.options.steps, "step") + " of " + short_duration_text(plan.mean_step_seconds) +
                 repeat_text(s.options));
  return plan;
}

TimeBudget::TimeBudget(Session& session, const TimePlan& plan) : session_(session), plan_(plan) {
  if (plan_.first_step_seconds > 0 && first_steps(session) >= kFewestFirstSteps)
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
  const double tried = plan_.first_step_seconds, per_step = plan_.mean_step_seconds * taken / tried;
  const double left = (1 - kReserve) * 60 * s.options.time_budget - mean_of(s.ranks, s.clock.total());
  const Index before = s.options.steps;
  fit_steps(s, left + done * taken, per_step, plan_.seconds_per_validation_token, true);
  if (s.options.steps == before) return;
  s.task.describe(s.folder);
  save();
  s.progress.log("steps take " + short_duration_text(taken) + ", not " + short_duration_text(tried) + ": " +
                 number_of(s.options.steps, "step") + repeat_text(s.options));
}

void dry_run(Session& session, const std::function<void(const std::string&)>& tell) {
  Session& s = session;
  Passes passes(s);
  const auto line = [&](const std::string& name, const std::string& text) {
    tell(format("{:-20s} ", name) + text);
  };
  line("parameters", std::to_string(s.task.model().parameter_count()));
  if (const std::string exports = s.task.exports(); !exports.empty()) line("export", exports);
  s.progress.status("measuring a batch, forward and backward");
  s.task.model().train();
  s.optimizer->clear_gradients();
  double begun = now_seconds();
  const double forward_before = s.clock.seconds(Phase::forward);
  Pass pass = passes.run(0, true);
  pass.loss.item();
  const double batch_seconds = now_seconds() - begun;

  const Json facts = model_facts(s, passes);
  if (facts.contains("flops_a_token"))
    line("operations", count_text(number_in(facts, "flops_a_token")) +
                           " per token, forward and backward, in matrix products");
  for (const auto& [kind, bytes] : facts["memory"].items())
    line("memory: " + kind, bytes_text(bytes.get<double>()));

  s.clock.enter(Phase::update);
  const double forward = s.clock.seconds(Phase::forward) - forward_before;
  begun = now_seconds();
  AsyncReadback(s.update(0, 1)).item();
  const auto batches = static_cast<double>(s.options.accumulate);
  double per_step = batches * batch_seconds + now_seconds() - begun;
  double tokens = batches * static_cast<double>(pass.batch.tokens);
  if (per_step < kDryRunTrial) {
    begun = now_seconds();
    Index measured = 0;
    per_step = average_over_run(s.task, measured_steps(s, passes, kDryRunTrial, measured));
    tokens = static_cast<double>(measured) / (now_seconds() - begun) * per_step;
  }
  line("a step", short_duration_text(per_step));
  line("speed", count_text(tokens / per_step) + " tokens/s");
  // A validation is a forward pass too.
  const double per_validation_token = forward / batch_seconds * per_step / tokens;
  const bool has_budget = s.options.time_budget > 0;
  if (has_budget)
    fit_steps(s, 60 * s.options.time_budget - s.clock.total(), per_step, per_validation_token, false);
  const auto steps = static_cast<double>(s.options.steps);
  const double validations = std::ceil(steps / static_cast<double>(s.options.validate_every));
  const double validating =
      per_validation_token * (validations * static_cast<double>(s.task.validation_tokens(false)) +
                              static_cast<double>(s.task.validation_tokens(true)));
  const double training = steps * per_step;
  line("the run", format("{} steps in about {}, of which {} for validations{}", s.options.steps,
                         duration_text(training + validating), duration_text(validating),
                         has_budget ? ": what fits into the time budget" : ""));
}

}  // namespace tapeformer
