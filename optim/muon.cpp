#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/muon.h>

#include <algorithm>
#include <numeric>
#include <string>

namespace tapeformer {
namespace {

/// Where operations read a narrower type, the products may be in it too.
bool has_shadow(const Parameter& parameter) { return parameter.state()->shadow.defined(); }

}  // namespace

Muon::Muon(std::vector<Parameter> parameters, const MuonConfig& config)
    : Optimizer("muon", std::move(parameters)), config_(config), momenta_(zeros_like_parameters()) {
  check_fields("muon", fields_of(config));
  for (std::size_t i = 0; i < parameters_.size(); ++i) add_parts(i);
  for (Stack& stack : stacks_) {
    const Tensor& like = parameters_[0].value();
    stack.updates = Tensor::zeros({stack.count, stack.rows, stack.columns}, like.dtype(), like.device());
  }
}

void Muon::add_parts(std::size_t parameter) {
  const Tensor& value = parameters_[parameter].value();
  if (value.rank() != 2) {
    throw Error("[muon] parameters must be matrices; got " + value.describe() +
                "; try MuonAdamW, which gives others to AdamW");
  }
  const auto named = config_.row_parts.find(parameters_[parameter].name());
  const std::vector<Index> rows =
      named == config_.row_parts.end() ? std::vector<Index>{value.size(0)} : named->second;
  if (std::accumulate(rows.begin(), rows.end(), Index{0}) != value.size(0)) {
    throw Error("[muon] the parts of a parameter must have its rows together; got row_parts of " +
                value.describe());
  }
  if (config_.row_beta2 > 0)
    row_moments_.push_back(Tensor::zeros({value.size(0)}, value.dtype(), value.device()));
  Index row = 0;
  for (const Index count : rows) {
    const std::size_t stack = stack_of(count, value.size(1));
    parts_.push_back({parameter, row, stack, stacks_[stack].count++});
    row += count;
  }
}

std::size_t Muon::stack_of(Index rows, Index columns) {
  const auto found = std::find_if(stacks_.begin(), stacks_.end(), [=](const Stack& stack) {
    return stack.rows == rows && stack.columns == columns;
  });
  const auto at = static_cast<std::size_t>(found - stacks_.begin());
  if (found == stacks_.end()) stacks_.push_back({rows, columns, 0, {}});
  return at;
}

void Muon::set_shards(const DataParallel& ranks) {
  if (ranks.is_sharded()) {
    throw Error(
        "[muon] ranks cannot divide the work on matrices that are made orthogonal as a whole; try "
        "without shard_optimizer");
  }
  Optimizer::set_shards(ranks);
}

double Muon::momentum_of_step() const {
  const auto step = static_cast<double>(steps_);
  if (step >= config_.momentum_warmup) return config_.momentum;
  return config_.momentum_start +
         step / config_.momentum_warmup * (config_.momentum - config_.momentum_start);
}

/// The update of a part, with its rows' moments.
void Muon::gather_rows(const Part& part) {
  const Stack& stack = stacks_[part.stack];
  const auto element = [](const Tensor& x, Index i) {
    return static_cast<char*>(x.state()->storage->data) + i * bytes_of(x.dtype());
  };
  kernels::StepTensor entry;
  entry.count = stack.rows * stack.columns;
  entry.setting = stack.columns;
  entry.value = element(stack.updates, part.place * entry.count);
  entry.state1 = element(row_moments_[part.parameter], part.row);
  rows_.add(entry, stack.updates);
}

void Muon::gather(double learning_rate, MultiTensorList& table) {
  settings_.clear();
  step_momentum_ = momentum_of_step();
  rows_.begin("muon");
  for (const Stack& stack : stacks_) {
    const auto rows = static_cast<double>(stack.rows), columns = static_cast<double>(stack.columns);
    double scale = config_.update_rms > 0 ? config_.update_rms * std::sqrt(std::max(rows, columns))
                                          : std::sqrt(std::max(1.0, rows / columns));
    if (config_.row_beta2 > 0 && config_.update_rms > 0) scale = 1;  // normalize_rows() scales
    settings_.push_back({learning_rate * scale, learning_rate * config_.weight_decay,
                         learning_rate * config_.cautious_decay});
  }
  for (const Part& part : parts_) {
    const Parameter& parameter = parameters_[part.parameter];
    if (!parameter.gradient().defined()) continue;
    const Stack& stack = stacks_[part.stack];
    const Index elements = stack.rows * stack.columns;
    if (elements == 0) continue;
    table.add_part(parameter, part.row * stack.columns, elements, momenta_[part.parameter], stack.updates,
                   part.place * elements, static_cast<Index>(part.stack));
    if (config_.row_beta2 > 0) gather_rows(part);
  }
  rows_.end();
}

void Muon::update(const kernels::StepTensors& tensors, const Tensor& factor) {
  const double* const by = factor.address<double>();
  dispatch(
      "muon",
      [&](auto on, auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        count_bytes("muon", tensors.bytes);
        kernels::muon_momentum<T>(on, tensors, step_momentum_, config_.nesterov, by);
        for (const Stack& stack : stacks_) {
          const kernels::NewtonSchulz sizes{stack.count,     stack.rows,
                                            stack.columns,   static_cast<int>(config_.newton_schulz_steps),
                                            config_.epsilon, has_shadow(parameters_[0])};
          kernels::newton_schulz(on, sizes, stack.updates.address<T>());
        }
        if (!rows_.empty())
          kernels::normalize_rows<T>(on, rows_.tensors(), config_.row_beta2, config_.update_rms, by);
        kernels::muon_step<T>(on, tensors, settings_.data(), static_cast<Index>(settings_.size()), by);
      },
      wide(no_elements()));
}

void Muon::visit_state(OptimizerVisitor& visitor) {
  settle();
  visit_tensors(visitor, "momentum", momenta_);
  visit_tensors(visitor, "row_moments", row_moments_);
  if (!parameters_.empty()) visitor.counter(state_name("steps", 0), steps_);  // of all of them
}

}  // namespace tapeformer
