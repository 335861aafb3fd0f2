#include <tapeformer/autograd/text/json.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/examples/shared/training_run.h>

#include <nlohmann/json.hpp>

#include <cmath>

namespace tapeformer {
namespace {

constexpr double kTrialSeconds = 3;

std::string line(const char* name, const std::string& text) { return format("%-20s ", name) + text + "\n"; }

}  // namespace

std::string TrainingRun::dry_run() {
  const double begun = now_seconds();
  const double per_step = seconds_a_step(kTrialSeconds);
  const double tokens_per_second = static_cast<double>(timed_tokens_) / (now_seconds() - begun);
  const double validation_begun = now_seconds();
  task_.validate(progress_);
  const double validation = now_seconds() - validation_begun;

  const Json facts = report_facts();
  std::string text = line("parameters", std::to_string(facts["parameters"].get<Index>()));
  if (pass_tokens_ > 0)
    text += line("operations", count_text(number_in(facts, "flops_a_token")) +
                                   " a token, forward and backward, in matrix products");
  for (const auto& [kind, bytes] : facts["memory"].items())
    text += line(("memory: " + kind).c_str(), bytes_text(bytes.get<double>()));
  const Index validations = (options_.steps + options_.validate_every - 1) / options_.validate_every;
  const double validating = static_cast<double>(validations + 1) * validation;  // the best weights' too
  const double training = static_cast<double>(options_.steps) * per_step;
  text += line("a step", short_duration_text(per_step));
  text += line("speed", count_text(tokens_per_second) + " tokens/s");
  text += line("the training", std::to_string(options_.steps) + " steps in about " +
                                   duration_text(training + validating) + ", of which " +
                                   duration_text(validating) + " for validations");
  return text;
}

}  // namespace tapeformer
