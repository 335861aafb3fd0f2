#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/training_run.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace tapeformer {

/// Runs the next batch forward and backward. If a step has several batches, or several ranks, the gradient of
/// each is weighted by its number of counted tokens, and train_step() divides by the sum of the weights. The
/// last one's backward pass starts to sum the ranks' gradients.
BatchLoss TrainingRun::pass(bool is_last) {
  clock_.enter(Phase::batches);
  task_.next_batch();
  clock_.enter(Phase::forward);
  const auto forward_and_backward = [&](const Tensor& weight) {
    std::optional<Profile> profile;
    const bool is_measured = std::exchange(is_measured_, true);
    if (!is_measured && !compute_.device.is_cuda()) profile.emplace();
    Tape tape;
    const BatchLoss batch = task_.batch_loss();
    if (!is_measured) {
      const TapeMemory memory = tape.memory();
      pass_saved_bytes_ = memory.saved_bytes - memory.parameter_bytes;
    }
    if (is_last) parallel_.sum_during(tape);
    clock_.enter(Phase::backward);
    const auto counted = static_cast<double>(batch.counted);
    tape.backward(batch.loss, weight.defined() ? weight
                              : accumulates()  ? Tensor::scalar_like(batch.loss, counted)
                                               : Tensor());
    if (profile) {
      pass_flops_ = profile->flops(false) + profile->flops(true);
      pass_tokens_ = batch.tokens;
    }
    return batch;
  };
  const BatchParts batch = task_.batch_parts();
  if (!compute_.device.is_cuda() || batch.tensors.empty()) return forward_and_backward({});

  std::vector<Tensor> inputs;
  for (const Tensor* tensor : batch.tensors) inputs.push_back(*tensor);
  const std::vector<Tensor> own = inputs;
  const DType type = wide(optimizer_->parameters().front().value().dtype());
  inputs.push_back(accumulates() ? Tensor::scalar(static_cast<double>(batch.counted), type, compute_.device)
                                 : Tensor());
  const Tensor loss = replay_.run("pass", inputs, [&](const std::vector<Tensor>& given) {
    for (std::size_t i = 0; i < own.size(); ++i) *batch.tensors[i] = given[i];
    return forward_and_backward(given.back()).loss;
  });
  for (std::size_t i = 0; i < own.size(); ++i) *batch.tensors[i] = own[i];
  if (!replay_.refusal().empty() && !std::exchange(has_told_refusal_, true))
    progress_.keep("note: steps are queued kernel by kernel: " + replay_.refusal());
  return {loss, batch.counted, batch.tokens};
}

/// One step of the optimizer. Returns false if it was stopped before one of its batches; the task and the
/// model's counters are then as they were before the step. Of several ranks none stops within a step.
bool TrainingRun::train_step() {
  const Index batches = options_.accumulate;
  const bool alone = control_.ranks->size() == 1;
  control_.ranks->set_step(state_.step + 1);
  if (const std::string* what = left_out(state_.step + 1)) {
    leave_out_step(*what);
    return true;
  }
  optimizer_->clear_gradients();
  QueuedStep step;
  Index counted = 0;
  Json task_before;
  if (batches > 1) task_.save_state(task_before);
  for (Index part = 0; part < batches; ++part) {
    if (alone && control_.stops()) {
      if (part == 0) return false;
      task_.load_state(task_before);
      set_model_counters(step.parts[0].counters);
      return false;
    }
    if (progress_.on_terminal()) {
      const std::string place = ", batch " + std::to_string(part + 1) + "/" + std::to_string(batches);
      progress_.show(status_ + (batches > 1 ? place : ""));
    }
    const std::vector<std::uint64_t> counters = model_counters();
    const BatchLoss batch = pass(part + 1 == batches);
    step.parts.push_back({AsyncReadback(batch.loss), batch.counted, {}, counters});
    for (const Tensor* tensor : task_.batch_parts().tensors) step.parts.back().inputs.push_back(*tensor);
    step.tokens += batch.tokens;
    counted += batch.counted;
  }
  auto counted_by_all = static_cast<double>(counted);
  if (!alone) agree(counted_by_all);
  clock_.enter(Phase::update);
  const double share = batches > 1 || !alone ? 1 / counted_by_all : 1;
  step.number = state_.step + 1;
  // Whoever skips spikes must wait for the loss before the update.
  step.is_spike = options_.loss_spike == "skip" && std::isfinite(loss_of(step)) && is_far_above(step);
  if (!step.is_spike) {
    if (watched_steps_ < kWatchedSteps) watch_gradients();
    // Changes nothing when the norm is not finite.
    const Tensor norm = optimizer_->clipped_step(schedule_(state_.step), share, options_.clip);
    if (average_) average_->include_weights(norm);
    step.norm = AsyncReadback(norm);
    parallel_.gather_values();
  }
  ++state_.step;
  step.epoch = task_.epoch();
  if (step.number < options_.steps) {
    clock_.enter(Phase::batches);
    task_.prepare_batch();
  }
  clock_.enter(Phase::update);
  queued_.push_back(std::move(step));
  // A GPU has the next step to do while the host looks at this one's numbers.
  settle(compute_.device.is_cuda() ? 1 : 0);
  return true;
}

/// Waits until the gradients are the sums over all ranks. `counted` becomes the sum of theirs, and all know
/// whether one of them was asked to stop.
void TrainingRun::agree(double& counted) {
  const PhaseClock::Scope scope(clock_, Phase::waiting);
  parallel_.finish();
  const bool stops = control_.stops(), late = is_late();
  const std::vector<double> all = control_.ranks->sum({counted, stops ? 1.0 : 0.0, late ? 1.0 : 0.0});
  counted = all[0];
  all_stop_ = all[1] > 0;
  all_late_ = all[2] > 0;
}

/// The mean over all ranks' counted tokens. Collective, and waits for it, the first time.
double TrainingRun::loss_of(QueuedStep& step) {
  if (step.loss) return *step.loss;
  double loss_sum = 0, counted = 0;
  for (StepPart& part : step.parts) {
    loss_sum += part.loss.item() * static_cast<double>(part.counted);
    counted += static_cast<double>(part.counted);
  }
  const std::vector<double> all = control_.ranks->sum({loss_sum, counted, static_cast<double>(step.tokens)});
  timed_tokens_ += static_cast<Index>(all[2]);
  tokens_ += static_cast<Index>(all[2]);
  step.loss = all[0] / all[1];
  return *step.loss;
}

std::vector<std::uint64_t> TrainingRun::model_counters() {
  std::vector<std::uint64_t> values;
  for (const auto& [name, value] : task_.model().named_counters()) values.push_back(*value);
  return values;
}

void TrainingRun::set_model_counters(const std::vector<std::uint64_t>& values) {
  auto from = values.begin();
  for (const auto& [name, value] : task_.model().named_counters()) *value = *from++;
}

/// Looks at the steps that are queued, but for the last `most_queued`.
void TrainingRun::settle(std::size_t most_queued) {
  while (queued_.size() > most_queued) {
    QueuedStep& step = queued_.front();
    loss_of(step);
    const bool good = is_good(step);
    clock_.enter(Phase::log);
    log_step(step, good);
    queued_.pop_front();
  }
}

}  // namespace tapeformer
