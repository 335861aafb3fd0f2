#include <tapeformer/autograd/tape.h>
#include <tapeformer/examples/shared/training_run.h>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <utility>

namespace tapeformer {

/// Runs the next batch forward and backward. If a step has several batches, or several ranks, the gradient of
/// each is weighted by its number of counted tokens, and train_step() divides by the sum of the weights. The
/// last one's backward pass starts to sum the ranks' gradients.
BatchLoss TrainingRun::pass(bool is_last) {
  clock_.enter(Phase::batches);
  task_.next_batch();
  clock_.enter(Phase::forward);
  const bool accumulates = options_.accumulate > 1 || control_.ranks->size() > 1;
  const auto forward_and_backward = [&](const Tensor& weight) {
    Tape tape;
    const BatchLoss batch = task_.batch_loss();
    if (is_last) parallel_.sum_during(tape);
    clock_.enter(Phase::backward);
    const auto counted = static_cast<double>(batch.counted);
    tape.backward(batch.loss, weight.defined() ? weight
                              : accumulates    ? Tensor::scalar_like(batch.loss, counted)
                                               : Tensor());
    return batch;
  };
  const BatchParts batch = task_.batch_parts();
  if (!compute_.device.is_cuda() || batch.tensors.empty()) return forward_and_backward({});

  std::vector<Tensor> inputs;
  for (const Tensor* tensor : batch.tensors) inputs.push_back(*tensor);
  const std::vector<Tensor> own = inputs;
  const DType type = wide(optimizer_->parameters().front().value().dtype());
  inputs.push_back(accumulates ? Tensor::scalar(static_cast<double>(batch.counted), type, compute_.device)
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
  optimizer_->clear_gradients();
  QueuedStep step;
  Index counted = 0;
  Json task_before;
  std::vector<std::uint64_t> counters_before;
  if (batches > 1) {
    task_.save_state(task_before);
    for (const auto& [name, value] : task_.model().named_counters()) counters_before.push_back(*value);
  }
  for (Index part = 0; part < batches; ++part) {
    if (alone && control_.stops()) {
      if (part == 0) return false;
      task_.load_state(task_before);
      auto before = counters_before.begin();
      for (const auto& [name, value] : task_.model().named_counters()) *value = *before++;
      return false;
    }
    if (progress_.on_terminal()) {
      const std::string place = ", batch " + std::to_string(part + 1) + "/" + std::to_string(batches);
      progress_.show(status_ + (batches > 1 ? place : ""));
    }
    const BatchLoss batch = pass(part + 1 == batches);
    step.losses.emplace_back(batch.loss);
    step.counted.push_back(batch.counted);
    step.tokens += batch.tokens;
    counted += batch.counted;
  }
  auto counted_by_all = static_cast<double>(counted);
  if (!alone) agree(counted_by_all);
  clock_.enter(Phase::update);
  const double share = batches > 1 || !alone ? 1 / counted_by_all : 1;
  // Changes nothing when the norm is not finite.
  step.norm = AsyncReadback(optimizer_->clipped_step(schedule_(state_.step), share, options_.clip));
  parallel_.gather_values();
  step.number = ++state_.step;
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

/// Looks at the steps that are queued, but for the last `most_queued`.
void TrainingRun::settle(std::size_t most_queued) {
  while (queued_.size() > most_queued) {
    QueuedStep& step = queued_.front();
    double loss_sum = 0, counted = 0;
    for (std::size_t part = 0; part < step.losses.size(); ++part) {
      loss_sum += step.losses[part].item() * static_cast<double>(step.counted[part]);
      counted += static_cast<double>(step.counted[part]);
    }
    const std::vector<double> all =
        control_.ranks->sum({loss_sum, counted, static_cast<double>(step.tokens)});
    const double loss = all[0] / all[1];
    require_finite(loss, "loss", step.number);
    require_finite(step.norm.item(), "gradient's norm", step.number);
    timed_tokens_ += static_cast<Index>(all[2]);
    clock_.enter(Phase::log);
    log_step(step, loss);
    queued_.pop_front();
  }
}

}  // namespace tapeformer
