#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/run_record.h>
#include <tapeformer/examples/train/dry_run.h>
#include <tapeformer/examples/train/run_report.h>
#include <tapeformer/examples/train/time_budget.h>

#include <nlohmann/json.hpp>

namespace tapeformer {
namespace {

constexpr double kTrialSeconds = 3;  // what a step may take to be timed as a whole, and several times

}  // namespace

void dry_run(Session& session, const std::function<void(const std::string&)>& tell) {
  Session& s = session;
  Passes passes(s);
  const auto line = [&](const std::string& name, const std::string& text) {
    tell(format("{:-20} ", name) + text);
  };
  line("parameters", std::to_string(s.task.model().parameter_count()));
  if (const std::string exports = s.task.exports(); !exports.empty()) line("export", exports);
  s.progress.status("measuring a batch, forward and backward");
  s.task.model().train();
  s.learner.clear_gradients();
  double begun = now_seconds();
  const double forward_before = s.clock.seconds(Phase::forward);
  Pass pass = passes.run(0, true);
  pass.loss.item();
  const double batch_seconds = now_seconds() - begun;

  const Json facts = RunReport(s, passes).model_facts();
  if (facts.contains("flops_a_token"))
    line("operations", count_text(number_in(facts, "flops_a_token")) +
                           " per token, forward and backward, in matrix products");
  for (const auto& [kind, bytes] : facts["memory"].items())
    line("memory: " + kind, bytes_text(bytes.get<double>()));

  s.clock.enter(Phase::update);
  const double forward = s.clock.seconds(Phase::forward) - forward_before;
  begun = now_seconds();
  AsyncReadback(s.learner.update(0, 1)).item();
  const auto batches = static_cast<double>(s.options.accumulate);
  double per_step = batches * batch_seconds + now_seconds() - begun;
  double tokens = batches * static_cast<double>(pass.batch.tokens);
  if (per_step < kTrialSeconds) {
    begun = now_seconds();
    StepTimer timer(s, passes);
    per_step = average_over_run(s.task, timer.measure(kTrialSeconds));
    tokens = static_cast<double>(timer.tokens()) / (now_seconds() - begun) * per_step;
  }
  line("a step", short_duration_text(per_step));
  line("speed", count_text(tokens / per_step) + " tokens/s");
  // A validation is a forward pass too.
  const double per_validation_token = forward / batch_seconds * per_step / tokens;
  const bool has_budget = s.options.time_budget > 0;
  if (has_budget)
    fit_steps(s, 60 * s.options.time_budget - s.clock.total(), per_step, per_validation_token, false);
  const Index validations = (s.options.steps + s.options.validate_every - 1) / s.options.validate_every;
  const Index validated = validations * s.task.validation_tokens(false) + s.task.validation_tokens(true);
  const double validating = per_validation_token * static_cast<double>(validated);
  const double training = static_cast<double>(s.options.steps) * per_step;
  line("the run", std::to_string(s.options.steps) + " steps in about " +
                      duration_text(training + validating) + ", of which " + duration_text(validating) +
                      " for validations" + (has_budget ? ": what fits into the time budget" : ""));
}

}  // namespace tapeformer
