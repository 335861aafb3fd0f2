#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/train/session.h>

namespace tapeformer {

Session::Session(RunFolder run_folder, const TrainingControl& how, TrainingTask& what, Progress& shown,
                 const PhaseClock& since, const Compute& on)
    : folder(std::move(run_folder)),
      control(how),
      task(what),
      progress(shown),
      clock(since),
      compute(on),
      options(what.options()),
      ranks(*control.ranks),
      parallel(control.ranks, trainable(what.model().parameters()),
               {DataParallelConfig().bucket_bytes, how.shard_optimizer}),
      optimizer(options.optimizer.make(trainable(what.model().parameters()), what.model().row_parts())),
      average(options.average_decay > 0 ? std::make_unique<MovingAverage>(
                                              trainable(what.model().parameters()), options.average_decay)
                                        : nullptr) {
  optimizer->set_shards(parallel);
  if (average) average->set_shards(parallel);
  struct CountBytes : OptimizerVisitor {
    Index bytes = 0;
    void tensor(const std::string&, const Tensor& value) override { bytes += value.bytes(); }
  } state;
  visit_state(state);
  state_bytes = parallel.is_sharded() ? state.bytes / ranks.size() : state.bytes;
}

bool Session::is_time_up() const {
  return control.max_minutes > 0 && now_seconds() - started > 60 * control.max_minutes;
}

std::vector<std::uint64_t> Session::draws() const {
  std::vector<std::uint64_t> values;
  for (const auto& [name, value] : task.model().named_counters()) values.push_back(*value);
  return values;
}

void Session::set_draws(const std::vector<std::uint64_t>& values) const {
  auto from = values.begin();
  for (const auto& [name, value] : task.model().named_counters()) *value = *from++;
}

double Session::sum_over_ranks(Index counted) {
  if (is_alone()) return static_cast<double>(counted);
  const PhaseClock::Scope scope(clock, Phase::waiting);
  parallel.finish();
  const std::vector<double> all =
      ranks.sum({static_cast<double>(counted), control.stops() ? 1.0 : 0.0, is_time_up() ? 1.0 : 0.0});
  all_stop_ = all[1] > 0;
  all_late_ = all[2] > 0;
  return all[0];
}

Tensor Session::update(double learning_rate, double share) {
  task.adjust_gradients();
  Tensor norm = optimizer->clipped_step(learning_rate, share, options.clip);
  if (average) average->include_weights(norm);
  parallel.gather_values();
  return norm;
}

void Session::with_evaluation_weights(const std::function<void()>& use) {
  const auto exchange = [this] {
    if (average && average->exchange_weights()) parallel.gather_values();
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

std::string Session::resume_command() const {
  return command_text({task.program(), "train", "--run", folder.path(), "--resume"});
}

std::string Session::with_remedy(const Error& error) const {
  folder.check_lock();  // its error says more, with another remedy
  return format("{}; once that is fixed, this continues from the last checkpoint: {}", error.what(),
                resume_command());
}

void Session::visit_state(OptimizerVisitor& visitor) {
  optimizer->visit_state(visitor);
  if (average) average->visit_state(visitor);
}

}  // namespace tapeformer
