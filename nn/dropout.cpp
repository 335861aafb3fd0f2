#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/autograd/draws.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/dropout.h>

namespace tapeformer {

Dropout::Dropout(const DropoutConfig& config, Generator& random) : probability_(config.probability) {
  if (!(probability_ >= 0 && probability_ <= 1))
    throw Error("[dropout] the probability must be in [0, 1]; got " + std::to_string(probability_));
  const auto stream = random.split().state();
  key_.seed = stream.seed;
  key_.stream = stream.stream;
}

Tensor Dropout::operator()(const Tensor& x) const {
  return active_probability() > 0 ? dropout(x, probability_, next_key()) : x;
}

DropoutKey Dropout::next_key() const {
  DropoutKey key = key_;
  if (active_probability() == 0) return key;
  key.moved_by = moved_when_replayed(key_.step);
  key.step = drawn([this] { return key_.step++; });
  return key;
}

void separate_draws(Module& model, int rank) {
  constexpr std::uint64_t kDraws = (std::uint64_t{1} << 32) - 1;  // a rank's, see DropoutKey
  for (const auto& [name, counter] : model.named_counters())
    *counter = (*counter & kDraws) | static_cast<std::uint64_t>(rank) << 32;
}

void Dropout::visit(ParameterVisitor& visitor) {
  visitor.counter("step", key_.step);
  visitor.training_mode(training_);
}

}  // namespace tapeformer
