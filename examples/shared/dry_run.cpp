#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/examples/shared/training_run.h>

#include <nlohmann/json.hpp>

#include <cmath>

namespace tapeformer {
namespace {

constexpr double kTrialSeconds = 3;  // what a step may take to be timed as a whole, and several times

}  // namespace

void TrainingRun::dry_run(const std::function<void(const std::string&)>& tell) {
  const auto line = [&](const std::string& name, const std::string& text) {
    tell(format("%-20s ", name) + text);
  };
  line("parameters", std::to_string(task_.model().parameter_count()));
  if (const std::string exports = task_.exports(); !exports.empty()) line("export", exports);
  progress_.show("measuring a batch, forward and backward");
  task_.model().train();
  task_.go_to_step(0);
  optimizer_->clear_gradients();
  double begun = now_seconds();
  const double forward_before = clock_.seconds(Phase::forward);
  const BatchLoss batch = pass(true);
  AsyncReadback(batch.loss).item();
  const double batch_seconds = now_seconds() - begun;

  const Json facts = report_facts();
  if (pass_tokens_ > 0)
    line("operations", count_text(number_in(facts, "flops_a_token")) +
                           " per token, forward and backward, in matrix products");
  for (const auto& [kind, bytes] : facts["memory"].items())
    line("memory: " + kind, bytes_text(bytes.get<double>()));

  clock_.enter(Phase::update);
  const double forward = clock_.seconds(Phase::forward) - forward_before;
  begun = now_seconds();
  AsyncReadback(optimizer_->clipped_step(0, 1, options_.clip)).item();
  const auto batches = static_cast<double>(options_.accumulate);
  double per_step = batches * batch_seconds + now_seconds() - begun;
  double tokens = batches * static_cast<double>(batch.tokens);
  if (per_step < kTrialSeconds) {
    timed_tokens_ = 0;
    begun = now_seconds();
    const std::vector<double> seconds = seconds_of_steps(kTrialSeconds);
    per_step = average_over_run(seconds);
    tokens = static_cast<double>(timed_tokens_) / (now_seconds() - begun) * per_step;
  }
  line("a step", short_duration_text(per_step));
  line("speed", count_text(tokens / per_step) + " tokens/s");
  // A validation is a forward pass too.
  const double per_validation_token = forward / batch_seconds * per_step / tokens;
  const bool has_budget = options_.time_budget > 0;
  if (has_budget) {
    const double left = 60 * options_.time_budget - clock_.total();
    fit_steps(left, per_step, per_validation_token, false);
  }
  const Index validations = (options_.steps + options_.validate_every - 1) / options_.validate_every;
  const Index validated = validations * task_.validation_tokens(false) + task_.validation_tokens(true);
  const double validating = per_validation_token * static_cast<double>(validated);
  const double training = static_cast<double>(options_.steps) * per_step;
  line("the training", std::to_string(options_.steps) + " steps in about " +
                           duration_text(training + validating) + ", of which " + duration_text(validating) +
                           " for validations" + (has_budget ? ": what fits into the time budget" : ""));
}

}  // namespace tapeformer
