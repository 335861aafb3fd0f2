#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/optim.h>
#include <tapeformer/optim/optimizer.h>

#include <unordered_set>
#include <utility>

namespace tapeformer {

Optimizer::Optimizer(std::string algorithm, std::vector<Parameter> parameters)
    : parameters_(std::move(parameters)), algorithm_(std::move(algorithm)) {
  std::unordered_set<ParameterState*> seen;
  for (const Parameter& parameter : parameters_) {
    const std::string got = "; got " + parameter.value().describe();
    if (!seen.insert(parameter.state()).second) {
      throw Error("[" + algorithm_ + "] each parameter is given once" + got + " twice");
    }
    const DType type = parameter.value().dtype();
    if (type != DType::f32 && type != DType::f64) {
      throw DTypeError("[" + algorithm_ + "] parameters must be f32 or f64" + got);
    }
    if (type != parameters_[0].value().dtype()) {
      throw DTypeError("[" + algorithm_ + "] parameters must be all f32 or all f64" + got + " and " +
                       parameters_[0].value().describe());
    }
    parameter.state()->optimized = true;
  }
}

void Optimizer::gather(double learning_rate) {
  table_.begin(algorithm_.c_str());
  gather(learning_rate, table_);
  table_.end();
}

void Optimizer::step(double learning_rate, double gradient_scale) {
  gather(learning_rate);
  if (table_.empty()) return;
  update(table_.tensors(), Tensor::full({1}, gradient_scale, DType::f64, parameters_[0].value().device()));
}

Tensor Optimizer::clipped_step(double learning_rate, double share, double max_norm) {
  gather(learning_rate);
  const Device device = parameters_.empty() ? Device::cpu() : parameters_[0].value().device();
  if (table_.empty()) return Tensor::zeros({1}, DType::f64, device);
  const Tensor norm = Tensor::empty({1}, DType::f64, device), factor = Tensor::empty_like(norm);
  dispatch(
      "gradient_norm",
      [&](auto on, auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        kernels::gradient_norm<T>(on, table_.tensors(), share, max_norm, norm.address<double>(),
                                  factor.address<double>());
      },
      wide(parameters_[0].value()));
  update(table_.tensors(), factor);
  return norm;
}

void Optimizer::clear_gradients() {
  for (Parameter& parameter : parameters_) parameter.clear_gradient();
}

std::vector<Tensor> Optimizer::zeros_like_parameters() const {
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : parameters_) {
    const Tensor& value = parameter.value();
    tensors.push_back(Tensor::zeros(value.shape(), value.dtype(), value.device()));
  }
  return tensors;
}

std::string Optimizer::state_name(const char* what, std::size_t parameter) const {
  const std::string& name = parameters_[parameter].name();
  return algorithm_ + "." + what + "." + (name.empty() ? std::to_string(parameter) : name);
}

void Optimizer::visit_tensors(OptimizerVisitor& visitor, const char* what,
                              const std::vector<Tensor>& tensors) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) visitor.tensor(state_name(what, i), tensors[i]);
}

void scale_gradients(const std::vector<Parameter>& parameters, double factor) {
  for (const Parameter& parameter : parameters) {
    const Tensor gradient = parameter.gradient();
    dispatch(
        "scale_gradients",
        [&](auto on, auto* g) { kernels::scale_in_place(on, gradient.elements(), factor, g); },
        wide(gradient));
  }
}

}  // namespace tapeformer
