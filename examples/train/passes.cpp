#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape/anomalies.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/train/passes.h>

namespace tapeformer {

Passes::Passes(Session& session)
    : session_(session),
      graphs_(session.task.model().state(),
              session.compute.graphs && session.is_alone() ? CudaGraphCache::kMostGraphs : 0) {}

void Passes::prepare(Index number) {
  if (ahead_ && ahead_->first == number) return;
  ahead_.emplace(number, session_.task.batch(number, {session_.ranks.rank(), session_.ranks.size()}));
}

Pass Passes::run(Index number, bool is_last) {
  Pass pass;
  pass.draws = session_.draws();
  session_.clock.enter(Phase::batches);
  prepare(number);
  pass.batch = std::move(ahead_->second);
  ahead_.reset();
  session_.clock.enter(Phase::forward);
  pass.loss =
      AsyncReadback(session_.compute.device.is_cuda() ? replayed(pass.batch, is_last)
                                                      : forward_and_backward(pass.batch, {}, is_last));
  return pass;
}

/// `weight` is the weight of the batch if a graph reads it from a tensor, else undefined.
Tensor Passes::forward_and_backward(const Batch& batch, const Tensor& weight, bool is_last) {
  std::optional<Profile> profile;
  const bool measures = !std::exchange(cost_.is_known, true);
  if (measures && !session_.compute.device.is_cuda()) profile.emplace();
  Tape tape;
  Tensor loss = session_.task.loss(batch);
  if (measures) {
    const TapeMemory memory = tape.memory();
    cost_.saved_bytes = memory.saved_bytes - memory.parameter_bytes;
  }
  if (is_last) session_.parallel.sum_during(tape);
  session_.clock.enter(Phase::backward);
  const bool is_weighted = !weight.defined() && weighs_batches();
  tape.backward(loss, is_weighted ? Tensor::scalar_like(loss, static_cast<double>(batch.counted)) : weight);
  if (profile) {
    cost_.flops = profile->flops(false) + profile->flops(true);
    cost_.tokens = batch.tokens;
  }
  return loss;
}

Tensor Passes::replayed(const Batch& batch, bool is_last) {
  std::vector<Tensor> inputs = batch.tensors;
  const Session& s = session_;
  inputs.push_back(weighs_batches() ? Tensor::scalar(static_cast<double>(batch.counted),
                                                     wide(s.optimizer->parameters().front().value().dtype()),
                                                     s.compute.device)
                                    : Tensor());
  Tensor loss = graphs_.run("pass", inputs, [&](std::vector<Tensor> given) {
    const Tensor weight = given.back();
    given.pop_back();
    return forward_and_backward({std::move(given), batch.counted, batch.tokens}, weight, is_last);
  });
  if (!graphs_.refusal().empty() && !std::exchange(has_told_refusal_, true))
    s.progress.log("note: steps are queued kernel by kernel: " + graphs_.refusal());
  return loss;
}

std::string Passes::anomaly_in(const std::vector<Pass>& passes) {
  const std::vector<std::uint64_t> draws = session_.draws();
  std::string found;
  for (const Pass& pass : passes) {
    session_.set_draws(pass.draws);
    try {
      Tape tape;
      tape.detect_anomalies();
      const Tensor loss = session_.task.loss(pass.batch);
      tape.backward(loss, weighs_batches()
                              ? Tensor::scalar_like(loss, static_cast<double>(pass.batch.counted))
                              : Tensor());
    } catch (const AnomalyError& error) {
      found = ": " + error.finding;
      break;
    }
  }
  session_.set_draws(draws);
  return found;
}

}  // namespace tapeformer
