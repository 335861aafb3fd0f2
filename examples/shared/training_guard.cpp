#include <tapeformer/autograd/config/config_json.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/training_run.h>
#include <tapeformer/nn/dropout.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapeformer {
namespace {

constexpr Index kMostBadSteps = 10;  // in a row

std::string not_finite(const char* name, double value) {
  return std::string("the ") + name + " is " + (std::isnan(value) ? "nan" : format("%g", value));
}

}  // namespace

/// What stops the run, unless it goes back.
BadStep TrainingRun::bad_step(Index number, const std::string& what, const std::string& policy) const {
  const std::string kept = checkpointed_step_ < 0
                               ? std::string("Nothing was saved")
                               : "The checkpoint of step " + std::to_string(checkpointed_step_) + " in " +
                                     folder_.path() + " is unharmed";
  return {number, what, policy == "go-back",
          "step " + std::to_string(number) + ": " + what + "; stopped. " + kept +
              "; try a lower --learning-rate or a longer --warmup"};
}

/// Throws: BadStep, of the last step that changed the weights, unless `value`, computed from them, is finite
void TrainingRun::require_finite(double value, const char* name) {
  if (std::isfinite(value)) return;
  Index step = state_.step;
  while (left_out(step) != nullptr) --step;
  const bool can_go_back = step > checkpointed_step_;
  throw bad_step(step, not_finite(name, value), can_go_back ? options_.non_finite : "stop");
}

/// Whether the step's loss, which is finite, is far above the last ones; takes it in, the first time.
bool TrainingRun::is_far_above(QueuedStep& step) {
  if (!step.is_far) {
    step.mean = loss_watch_.mean();
    step.is_far = loss_watch_.is_far_above(loss_of(step), options_.spike_deviations);
  }
  return *step.is_far;
}

/// False if the step's loss is none to be averaged. Throws: BadStep if the run must not go on from here
bool TrainingRun::is_good(QueuedStep& step) {
  const double loss = *step.loss, norm = step.is_spike ? 0 : step.norm.item();
  if (!std::isfinite(loss) || !std::isfinite(norm)) {
    const bool has_loss = std::isfinite(loss);
    const std::string what =
        not_finite(has_loss ? "gradient's norm" : "loss", has_loss ? norm : loss) + anomaly_in(step);
    treat(options_.non_finite, step.number, what);
    return false;
  }
  if (is_far_above(step)) {
    treat(options_.loss_spike, step.number,
          format("the loss is %.4f", loss) + format(", far above the last ones' mean of %.4f", step.mean));
    return options_.loss_spike == "note";
  }
  bad_in_a_row_ = 0;
  return true;
}

/// Names, in the last of the watched steps, the trainable parameters whose gradients were all missing or
/// exactly zero. Collective.
void TrainingRun::watch_gradients() {
  const auto parameters = task_.model().named_parameters();
  std::vector<double> found(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor gradient = parameters[i].second.gradient().defined()
                                ? parameters[i].second.gradient().to(Device::cpu()).to(DType::f32)
                                : Tensor();
    if (!gradient.defined()) continue;
    const float* values = gradient.data<float>();
    found[i] = std::any_of(values, values + gradient.elements(), [](float x) { return x != 0; });
  }
  found = control_.ranks->sum(found);
  with_gradient_.resize(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) with_gradient_[i] += found[i];
  if (++watched_steps_ < kWatchedSteps) return;
  std::string names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (with_gradient_[i] > 0 || !parameters[i].second.trainable()) continue;
    names += (names.empty() ? "" : ", ") + parameters[i].first;
  }
  if (!names.empty())
    progress_.keep("note: no gradient, or exactly zero, in the first " + std::to_string(kWatchedSteps) +
                   " steps, so these are not trained: " + names);
}

void TrainingRun::treat(const std::string& policy, Index step, const std::string& what) {
  if (policy == "note") return note_bad_step(step, what, "made");
  const bool too_many = ++bad_in_a_row_ >= kMostBadSteps;
  if (policy != "skip" || too_many) throw bad_step(step, what, too_many ? "stop" : policy);
  note_bad_step(step, what, "skipped");
}

void TrainingRun::note_bad_step(Index step, const std::string& what, const char* update) {
  ++bad_steps_;
  progress_.keep("step " + std::to_string(step) + ": " + what + "; its update was " + update);
  folder_.append_metrics({{"step", step}, {"bad_step", what}, {"update", update}});
}

/// Computes the step's batches again, from the same random state, and names the operation that gave the first
/// value that is not finite. Empty if there is none now.
std::string TrainingRun::anomaly_in(const QueuedStep& step) {
  const BatchParts now = task_.batch_parts();
  const auto set_inputs = [&](const std::vector<Tensor>& inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) *now.tensors[i] = inputs[i];
  };
  std::vector<Tensor> inputs;
  for (const Tensor* tensor : now.tensors) inputs.push_back(*tensor);
  const std::vector<std::uint64_t> counters = model_counters();
  std::string found;
  for (const StepPart& part : step.parts) {
    set_inputs(part.inputs);
    set_model_counters(part.counters);
    try {
      Tape tape;
      tape.detect_anomalies();
      const Tensor loss = task_.batch_loss().loss;
      tape.backward(loss,
                    accumulates() ? Tensor::scalar_like(loss, static_cast<double>(part.counted)) : Tensor());
    } catch (const TapeError& error) {
      const std::string message = error.what();
      found = ": " + message.substr(0, message.find("; try"));
      break;
    }
  }
  set_inputs(inputs);
  set_model_counters(counters);
  return found;
}

/// Model, optimizer, task and this run's own state as they were at the folder's checkpoint.
void TrainingRun::restore(const Json& checkpoint) {
  const auto visit = [this](OptimizerVisitor& visitor) { visit_state(visitor); };
  parallel_.with_whole_values([&] { folder_.load_checkpoint(task_.model(), visit); });
  separate_draws(task_.model(), control_.ranks->rank());
  task_.load_state(checkpoint);
  try {
    for (ConfigField& field : fields_of(state_)) read_field(checkpoint.at(field.name), field);
  } catch (const Error& error) {
    folder_.refuse_state(error.what());
  }
  tokens_ = checkpoint.value("tokens", tokens_);  // older checkpoints lack it
  if (checkpoint.contains("guard")) {             // older checkpoints lack it
    const Json& guard = checkpoint.at("guard");
    read_fields(guard.at("loss_watch"), fields_of(loss_watch_));
    guard.at("bad_steps").get_to(bad_steps_);
    guard.at("bad_in_a_row").get_to(bad_in_a_row_);
    guard.at("left_out").get_to(left_out_);
  }
  checkpointed_step_ = state_.step;
  folder_.cut_metrics(state_.step);
}

/// Goes on from the last checkpoint, from where the bad step will be left out.
void TrainingRun::go_back(const BadStep& bad) {
  wait_for_checkpoint();
  progress_.clear();
  if (!bad.goes_back || checkpointed_step_ < 0) throw BadStep(bad);
  queued_.clear();
  auto left_out = std::move(left_out_);
  left_out.emplace_back(bad.number, bad.reason);
  try {
    restore(folder_.checkpoint_state());
  } catch (const Json::exception& error) {  // of a file that was replaced meanwhile
    folder_.refuse_state(reason_of(error));
  }
  left_out_ = std::move(left_out);
  progress_.keep("step " + std::to_string(bad.number) + ": " + bad.reason + "; went back to step " +
                 std::to_string(state_.step));
}

const std::string* TrainingRun::left_out(Index step) const {
  for (const auto& [number, what] : left_out_)
    if (number == step) return &what;
  return nullptr;
}

/// Passes over the batches of the next step, which was bad before the run went back.
void TrainingRun::leave_out_step(const std::string& what) {
  settle();
  clock_.enter(Phase::batches);
  for (Index part = 0; part < options_.accumulate; ++part) task_.next_batch();
  ++state_.step;
  ++bad_in_a_row_;
  note_bad_step(state_.step, what, "left out");
}

}  // namespace tapeformer
