#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/optim/muon.h>

#include <algorithm>
#include <numeric>

namespace tapeformer {

Muon::Muon(std::vector<Parameter> parameters, const MuonConfig& config)
    : Optimizer("muon", std::move(parameters)), config_(config), momenta_(zeros_like_parameters()) {
  check_fields("muon", fields_of(config));
  if (!(config.epsilon >= 1e-37))  // f32 has no reciprocals of much smaller ones
    throw Error(format("[muon] epsilon must be at least 1e-37; got {}", config.epsilon));
  for (std::size_t i = 0; i < parameters_.size(); ++i) add_parts(i);
  for (Stack& stack : stacks_) {
    const Tensor& like = parameters_[0].value();
    stack.updates = Tensor::zeros({stack.count, stack.rows, stack.columns}, like.dtype(), like.device());
  }
}

void Muon::add_parts(std::size_t parameter) {
  const Tensor& value = parameters_[parameter].value();
  if (value.rank() != 2)
    throw Error(
        format("[muon] parameters must be matrices; got {}; try MuonAdamW, which gives others to AdamW",
               value.describe()));
  const auto named = config_.row_parts.find(parameters_[parameter].name());
  const std::vector<Index> rows =
      named == config_.row_parts.end() ? std::vector<Index>{value.size(0)} : named->second;
  if (std::accumulate(rows.begin(), rows.end(), Index{0}) != value.size(0))
    throw Error(format("[muon] the parts of a parameter must add up to its rows; got row_parts of {}",
                       value.describe()));
  Index row = 0;
  for (const Index count : rows) {
    const auto found = std::find_if(stacks_.begin(), stacks_.end(), [&](const Stack& other) {
      return other.rows == count && other.columns == value.size(1);
    });
    const auto stack = static_cast<std::size_t>(found - stacks_.begin());
    if (found == stacks_.end()) stacks_.push_back({count, value.size(1), 0, {}});
    parts_.push_back({parameter, row, stack, stacks_[stack].count++});
    row += count;
  }
}

void Muon::set_shards(const DataParallel& ranks) {
  if (ranks.is_sharded())
    throw Error(
        "[muon] ranks cannot divide the work on matrices that are made orthogonal as a whole; try "
        "without shard_optimizer");
  Optimizer::set_shards(ranks);
}

void Muon::gather(double learning_rate, MultiTensorList& table) {
  settings_.clear();
  for (const Stack& stack : stacks_) {
    const auto rows = static_cast<double>(stack.rows), columns = static_cast<double>(stack.columns);
    const double scale = config_.update_rms > 0 ? config_.update_rms * std::sqrt(std::max(rows, columns))
                                                : std::sqrt(std::max(1.0, rows / columns));
    settings_.push_back({learning_rate * scale, learning_rate * config_.weight_decay});
  }
  for (const Part& part : parts_) {
    const Parameter& parameter = parameters_[part.parameter];
    if (!parameter.gradient().defined()) continue;
    const Stack& stack = stacks_[part.stack];
    const Index elements = stack.rows * stack.columns;
    if (elements == 0) continue;
    table.add_part(parameter, part.row * stack.columns, elements, momenta_[part.parameter], stack.updates,
                   part.place * elements, static_cast<Index>(part.stack));
  }
}

void Muon::update(const kernels::StepTensors& tensors, const Tensor& factor) {
  const double* const by = factor.address<double>();
  // Where operations read a narrower type, the products may be in it too.
  const bool is_narrow = parameters_[0].state()->shadow.defined();
  dispatch("muon", operands(wide(no_elements())), [&](auto on, auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    count_bytes("muon", tensors.bytes);
    kernels::muon_momentum<T>(on, tensors, config_.momentum, config_.nesterov, by);
    for (const Stack& stack : stacks_) {
      const kernels::NewtonSchulz sizes{stack.count,     stack.rows,
                                        stack.columns,   static_cast<int>(config_.newton_schulz_steps),
                                        config_.epsilon, is_narrow};
      kernels::newton_schulz(on, sizes, stack.updates.address<T>());
    }
    kernels::muon_step<T>(on, tensors, settings_.data(), static_cast<Index>(settings_.size()), by);
  });
}

void Muon::visit_state(OptimizerVisitor& visitor) {
  count_last_step();
  visit_tensors(visitor, "momentum", momenta_);
}

}  // namespace tapeformer
