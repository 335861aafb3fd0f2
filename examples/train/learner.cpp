#include <tapeformer/examples/train/learner.h>

namespace tapeformer {
namespace {

struct CountBytes : OptimizerVisitor {
  Index bytes = 0;
  void tensor(const std::string&, const Tensor& value) override {
    bytes += value.elements() * bytes_of(value.dtype());
  }
  void counter(const std::string&, std::int64_t&) override {}
};

}  // namespace

Learner::Learner(Module& model, const TrainingOptions& options, const std::shared_ptr<Communicator>& ranks,
                 bool shard_optimizer)
    : clip_(options.clip),
      parallel_(ranks, trainable(model.parameters()), {DataParallelConfig().bucket_bytes, shard_optimizer}),
      optimizer_(options.optimizer.make(trainable(model.parameters()), model.row_parts())),
      average_(options.average_decay > 0
                   ? std::make_unique<MovingAverage>(trainable(model.parameters()), options.average_decay)
                   : nullptr) {
  optimizer_->set_shards(parallel_);
  if (average_) average_->set_shards(parallel_);
  CountBytes state;
  visit_state(state);
  state_bytes_ = parallel_.is_sharded() ? state.bytes / ranks->size() : state.bytes;
}

Tensor Learner::update(double learning_rate, double share) {
  Tensor norm = optimizer_->clipped_step(learning_rate, share, clip_);
  if (average_) average_->include_weights(norm);
  parallel_.gather_values();
  return norm;
}

void Learner::with_evaluation_weights(const std::function<void()>& use) {
  const auto exchange = [this] {
    if (average_ && average_->exchange_weights()) parallel_.gather_values();
  };
  exchange();
  try {
    use();
  } catch (...) {
    exchange();
    throw;
  }
  exchange();
}

void Learner::visit_state(OptimizerVisitor& visitor) {
  optimizer_->visit_state(visitor);
  if (average_) average_->visit_state(visitor);
}

}  // namespace tapeformer
