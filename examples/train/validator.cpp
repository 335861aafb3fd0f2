#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/train/validator.h>

#include <nlohmann/json.hpp>

#include <cmath>

namespace tapeformer {

// The message of Ctrl-C.
constexpr const char* kFinishingValidation =
    "finishing this validation, then saving; Ctrl-C again quits without saving";
constexpr const char* kMeasuringFirst =
    "saved; measuring the weights, as there was no validation yet; Ctrl-C again quits at once";

bool Validator::is_due() const {
  const TrainingOptions& options = session_.options;
  return session_.step % options.validate_every == 0 || session_.step == options.steps;
}

bool Validator::is_patient() const {
  return session_.options.patience == 0 || since_best_ < session_.options.patience;
}

void Validator::validate() {
  log_.flush_pending();
  session_.with_evaluation_weights([this] { measure(); });
  if (!is_patient())
    session_.progress.log("no better loss in " + number_of(session_.options.patience, "validation") +
                          ": stopped early");
}

void Validator::measure() {
  Session& s = session_;
  const TrainingLog::Pause pause(log_);
  const double after = log_.elapsed();
  const char* const said_in_steps = say_at_interrupt(kFinishingValidation);
  if (s.control.stops()) s.progress.log(kFinishingValidation);  // Ctrl-C came in the step before
  s.clock.enter(Phase::validation);
  const Validation result = s.task.validate(s.progress);
  s.clock.enter(Phase::checkpoints);
  guard_.require_finite(result.loss, "validation loss");
  const bool is_best = keep_if_best(result.loss);
  s.clock.enter(Phase::log);
  s.progress.log(format("step {}: validation loss {:.4f}, perplexity {:.3f}{}{}, after {}", s.step,
                        result.loss, std::exp(result.loss), result.remark, is_best ? ", the best so far" : "",
                        duration_text(after)));
  s.clock.enter(Phase::samples);
  std::vector<std::string> samples;
  if (s.options.samples > 0 && s.folder.writes()) samples = s.task.samples(s.batches(), s.compute.graphs);
  for (const std::string& sample : samples) s.progress.log("  " + replaced(sample, "\n", "\n  "));
  if (report_.is_due()) report_.show_attention();
  s.clock.enter(Phase::log);
  Json metrics = {{"step", s.step}, {"validation_loss", result.loss}, {"perplexity", std::exp(result.loss)}};
  for (const auto& [name, number] : result.further) metrics[name] = number;
  metrics["best"] = is_best;
  metrics["tokens"] = log_.tokens();
  metrics["elapsed"] = log_.elapsed();
  if (!samples.empty()) metrics["samples"] = samples;
  s.folder.append_metrics(metrics);
  log_.plot_validation(result.loss);
  say_at_interrupt(said_in_steps);
}

/// Keeps the weights that had `loss` among the last ones, and as the best ones if they are.
bool Validator::keep_if_best(double loss) {
  const bool is_best = !has_best_ || loss < best_loss_;
  if (is_best) best_loss_ = loss;
  has_best_ = true;
  since_best_ = is_best ? 0 : since_best_ + 1;
  Session& s = session_;
  const Index kept = s.options.keep_checkpoints;
  if (!is_best && kept == 0) return false;
  s.parallel.with_whole_values([&] {
    if (is_best) s.folder.save_best_weights(s.task.model());
    if (kept > 0) s.folder.keep_weights(s.task.model(), s.step, kept);
  });
  return is_best;
}

void Validator::keep_first_weights() {
  Session& s = session_;
  const PhaseClock::Scope scope(s.clock, Phase::validation);
  s.progress.log(kMeasuringFirst);
  say_at_interrupt(kMeasuringFirst);
  double loss = 0;
  s.with_evaluation_weights([&] {
    loss = s.task.validate(s.progress).loss;
    s.parallel.with_whole_values([&] { s.folder.save_best_weights(s.task.model()); });
  });
  s.progress.log(format("validation loss {:.4f}; weights in ", loss) + s.folder.file(kBestWeights));
}

void Validator::load_best_weights() {
  session_.ranks.barrier();  // rank 0 has written them
  session_.parallel.with_whole_values(
      [this] { load_weights(session_.folder.file(kBestWeights), session_.task.model()); });
}

}  // namespace tapeformer
