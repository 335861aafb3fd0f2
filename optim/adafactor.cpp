#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/adafactor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tapeformer {

Adafactor::Adafactor(std::vector<Parameter> parameters, const AdafactorConfig& config)
    : Optimizer("adafactor", std::move(parameters)), config_(config) {
  check_fields("adafactor", fields_of(config));
  if (!(config.epsilon >= 0))
    throw Error("[adafactor] epsilon must not be negative; got " + std::to_string(config.epsilon));
  for (const Parameter& parameter : parameters_) {
    const Tensor& value = parameter.value();
    if (!is_updated_whole(parameter)) {
      throw Error("[adafactor] ranks must not divide a parameter, whose rows and columns have sums; got " +
                  value.describe() + "; try without shard_optimizer, or another optimizer");
    }
    State state;
    state.decays = config_.decays(parameter);
    const auto zeros = [&](const Shape& shape) {
      return Tensor::zeros(shape, value.dtype(), value.device());
    };
    const int rank = value.rank();
    if (rank < 2) {
      state.first = zeros(value.shape());
    } else {
      Shape sizes;
      for (int axis = 0; axis < rank - 1; ++axis) sizes.append(value.shape()[axis]);
      state.first = zeros(sizes);
      sizes.set(rank - 2, value.shape()[rank - 1]);
      state.second = zeros(sizes);
    }
    states_.push_back(state);
  }
}

template <class T>
kernels::AdafactorTensor Adafactor::kernel_tensor(std::size_t i) const {
  const Parameter& parameter = parameters_[i];
  const Tensor &value = parameter.value(), &shadow = parameter.state()->shadow;
  const State& state = states_[i];
  kernels::AdafactorTensor tensor;
  tensor.gradient = parameter.gradient().address<T>();
  tensor.value = value.address<T>();
  tensor.shadow = shadow.defined() ? shadow.address<BFloat16>() : nullptr;
  if (value.rank() < 2) {
    tensor.variance = state.first.address<T>();
    tensor.columns = value.elements();
    return tensor;
  }
  tensor.row_variance = state.first.address<T>();
  tensor.column_variance = state.second.address<T>();
  tensor.columns = value.shape()[value.rank() - 1];
  tensor.rows = value.shape()[value.rank() - 2];
  tensor.matrices = value.elements() == 0 ? 0 : value.elements() / (tensor.rows * tensor.columns);
  return tensor;
}

void Adafactor::gather(double learning_rate, MultiTensorList& table) {
  gathered_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].gradient().defined()) continue;
    table.add(parameters_[i], Tensor(), Tensor(), 0);
    const bool narrow = parameters_[i].value().dtype() == DType::f32;
    const auto count = static_cast<double>(states_[i].steps + 1);
    kernels::AdafactorStep settings;
    settings.learning_rate = learning_rate;
    settings.weight_decay = states_[i].decays ? config_.weight_decay : 0;
    settings.relative_rate = std::min(learning_rate, 1 / std::sqrt(count));
    settings.weight = std::pow(count, -config_.beta2_decay);
    settings.epsilon = config_.epsilon > 0 ? config_.epsilon
                       : narrow            ? static_cast<double>(std::numeric_limits<float>::epsilon())
                                           : std::numeric_limits<double>::epsilon();
    settings.least_scale = config_.least_scale;
    settings.update_clip = config_.update_clip;
    gathered_.push_back({i, narrow ? kernel_tensor<float>(i) : kernel_tensor<double>(i), settings});
  }
}

void Adafactor::update(const kernels::StepTensors& tensors, const Tensor& factor) {
  dispatch(
      "adafactor",
      [&](auto on, auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        count_bytes("adafactor", tensors.bytes);
        for (const Step& step : gathered_)
          kernels::adafactor_step<T>(on, step.tensor, step.settings, factor.address<double>());
      },
      wide(no_elements()));
}

void Adafactor::count_step() {
  for (const Step& step : gathered_) ++states_[step.parameter].steps;
}

void Adafactor::visit_state(OptimizerVisitor& visitor) {
  settle();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& state = states_[i];
    visitor.tensor(state_name(state.second.defined() ? "row_variance" : "variance", i), state.first);
    if (state.second.defined()) visitor.tensor(state_name("column_variance", i), state.second);
    visitor.counter(state_name("steps", i), state.steps);
  }
}

}  // namespace tapeformer
