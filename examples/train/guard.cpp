#include <tapeformer/autograd/config/config_json.h>
#include <tapeformer/examples/train/guard.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr Index kMostBadSteps = 10;  // in a row

std::string not_finite(const char* name, double value) {
  return format("the {} is {}", name, std::isnan(value) ? "nan" : format("{:g}", value));
}

/// Whether the parameter has a gradient with a value other than 0.
bool has_gradient(const Parameter& parameter) {
  if (!parameter.gradient().defined()) return false;
  const Tensor gradient = parameter.gradient().to(Device::cpu()).to(DType::f32);
  const float* values = gradient.data<float>();
  return std::any_of(values, values + gradient.elements(), [](float x) { return x != 0; });
}

}  // namespace

bool LossWatch::is_far_above(double loss, double deviations) {
  constexpr Index kLosses = 50;
  const double most = mean_ + deviations * std::sqrt(variance_);
  const bool is_far = deviations > 0 && losses_ >= kLosses && loss > most;
  const double rate = 1 / static_cast<double>(std::min(losses_ + 1, kLosses));
  const double change = (is_far ? most : loss) - mean_;
  mean_ += rate * change;
  variance_ = (1 - rate) * (variance_ + rate * change * change);
  ++losses_;
  return is_far;
}

BadStep Guard::bad_step(Index number, const std::string& what) const {
  const Index saved = session_.checkpointed_step;
  const std::string kept =
      saved < 0 ? "Nothing was saved"
                : format("The checkpoint of step {} in {} is intact", saved, session_.folder.path());
  return BadStep(format("step {}: {}; stopped. {}; try a lower --learning-rate or a longer --warmup", number,
                        what, kept));
}

void Guard::require_finite(double value, const char* name) const {
  if (!std::isfinite(value)) throw bad_step(session_.step, not_finite(name, value));
}

/// The first call for a step adds its loss, which is finite, to the last ones.
bool Guard::is_far_above(QueuedStep& step) {
  if (!step.is_far) {
    step.mean_before = loss_watch_.mean();
    step.is_far = loss_watch_.is_far_above(*step.loss, session_.options.spike_deviations);
  }
  return *step.is_far;
}

bool Guard::leaves_out(QueuedStep& step) {
  return step.counted > 0 && std::isfinite(*step.loss) && is_far_above(step);
}

bool Guard::is_good(QueuedStep& step) {
  const TrainingOptions& options = session_.options;
  const double loss = *step.loss, norm = step.is_left_out ? 0 : step.norm.item();
  if (!std::isfinite(loss) || !std::isfinite(norm)) {
    const std::string what =
        std::isfinite(loss) ? not_finite("gradient's norm", norm) : not_finite("loss", loss);
    handle_bad_step(options.non_finite, step.number, what + passes_.anomaly_in(step.passes),
                    std::isfinite(norm));
    return false;
  }
  if (step.counted == 0) return false;  // no answers: a meaningless loss of 0
  if (is_far_above(step)) {
    handle_bad_step(
        options.loss_spike, step.number,
        format("the loss is {:.4f}, far above the last ones' mean of {:.4f}", loss, step.mean_before),
        options.loss_spike == "note");
    if (options.loss_spike != "note") return false;
  }
  bad_in_a_row_ = 0;
  return true;
}

void Guard::handle_bad_step(const std::string& policy, Index step, const std::string& what, bool is_made) {
  if (policy != "note" && (++bad_in_a_row_ >= kMostBadSteps || policy != "skip")) throw bad_step(step, what);
  const char* const update = is_made ? "made" : "skipped";
  ++bad_steps_;
  session_.progress.log(format("step {}: {}; its update was {}", step, what, update));
  session_.folder.append_metrics({{"step", step}, {"bad_step", what}, {"update", update}});
}

Json Guard::state() const {
  Json watch;
  write_fields(watch, fields_of(loss_watch_));
  return {{"loss_watch", watch}, {"bad_steps", bad_steps_}, {"bad_in_a_row", bad_in_a_row_}};
}

void Guard::load(const Json& state) {
  read_fields(state.at("loss_watch"), fields_of(loss_watch_));
  state.at("bad_steps").get_to(bad_steps_);
  state.at("bad_in_a_row").get_to(bad_in_a_row_);
}

void GradientWatch::see(Session& session) {
  if (steps_ == kSteps) return;
  const auto parameters = session.task.model().named_parameters();
  std::vector<double> found;
  for (const auto& [name, parameter] : parameters) found.push_back(has_gradient(parameter) ? 1 : 0);
  found = session.ranks.sum(found);
  with_gradient_.resize(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) with_gradient_[i] += found[i];
  if (++steps_ < kSteps) return;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (with_gradient_[i] == 0 && parameters[i].second.trainable()) names.push_back(parameters[i].first);
  if (!names.empty())
    session.progress.log(
        format("note: no gradient, or exactly zero, in the first {} steps, so these are not trained: {}",
               kSteps, joined(names, ", ")));
}

}  // namespace tapeformer
