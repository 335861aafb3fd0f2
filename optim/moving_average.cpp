#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/moving_average.h>

#include <algorithm>
#include <utility>

namespace tapeformer {

MovingAverage::MovingAverage(std::vector<Parameter> parameters, double decay)
    : Optimizer("moving_average", std::move(parameters)), decay_(decay), averages_(zeros_like_parameters()) {
  if (!(decay >= 0 && decay < 1))
    throw Error(format("[moving_average] decay must be in [0, 1); got {}", decay));
}

void MovingAverage::include_weights(const Tensor& norm) {
  count_last_step();
  const auto n = static_cast<double>(included_);
  const double weight = 1 - std::min(decay_, n / (n + 9));
  norm.defined() ? step(weight, norm) : step(weight);
}

bool MovingAverage::exchange_weights() {
  count_last_step();
  if (included_ == 0 || parameters_.empty()) return false;
  MultiTensorList list;
  list.begin("moving_average");
  gather(0, list);
  list.end();
  if (list.empty()) return true;  // ranks divide the work, and this one has no share
  dispatch("moving_average", operands(wide(no_elements())), [&](auto on, auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    kernels::exchange_values<T>(on, list.tensors());
  });
  return true;
}

void MovingAverage::gather(double weight, MultiTensorList& table) {
  weight_ = weight;
  for (std::size_t i = 0; i < parameters_.size(); ++i) table.add(parameters_[i], averages_[i], Tensor(), 0);
}

void MovingAverage::update(const kernels::StepTensors& tensors, const Tensor& norm) {
  require_same_device("moving_average", "norm", norm, parameters_[0].value());
  dispatch("moving_average", operands(wide(no_elements())), [&](auto on, auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    count_bytes("moving_average", 2 * tensors.elements * Index{sizeof(T)});
    kernels::average_step<T>(on, tensors, weight_, norm.address<double>());
  });
}

void MovingAverage::visit_state(OptimizerVisitor& visitor) {
  count_last_step();
  visit_tensors(visitor, "value", averages_);
  visitor.counter("moving_average.included", included_);
}

}  // namespace tapeformer
