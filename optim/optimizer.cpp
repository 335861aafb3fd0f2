#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/optimizer.h>

#include <cmath>
#include <unordered_set>
#include <utility>

namespace tapeformer {
namespace {

/// Refuses tensors that an optimizer shows outside visit_tensors().
struct RefuseOtherTensors : OptimizerVisitor {
  void tensor(const std::string& name, const Tensor&) override {
    throw Error(format(
        "[set_shards] state that ranks divide must be shown as a whole; got {}; try visit_tensors() in "
        "visit_state()",
        name));
  }
};

}  // namespace

Optimizer::Optimizer(std::string algorithm, std::vector<Parameter> parameters)
    : parameters_(std::move(parameters)), algorithm_(std::move(algorithm)) {
  std::unordered_set<ParameterState*> seen;
  for (const Parameter& parameter : parameters_) {
    const Tensor &value = parameter.value(), &first = parameters_[0].value();
    if (!seen.insert(parameter.state()).second)
      throw Error(
          format("[{}] a parameter must be given only once; got {} twice", algorithm_, value.describe()));
    if (value.dtype() != DType::f32 && value.dtype() != DType::f64)
      throw DTypeError(format("[{}] parameters must be f32 or f64; got {}", algorithm_, value.describe()));
    if (value.dtype() != first.dtype())
      throw DTypeError(format("[{}] parameters must be all f32 or all f64; got {} and {}", algorithm_,
                              value.describe(), first.describe()));
  }
  for (const Parameter& parameter : parameters_) parameter.state()->optimized = true;
}

void Optimizer::count_last_step() {
  if (factor_.defined() && std::isfinite(factor_.item())) count_step();
  factor_ = {};
}

void Optimizer::gather(double learning_rate) {
  if (!std::isfinite(learning_rate))
    throw Error(format("[{}] learning_rate must be finite; got {}", algorithm_, learning_rate));
  table_.begin(algorithm_.c_str(), parameters_.empty() ? Tensor() : parameters_[0].value());
  gather(learning_rate, table_);
  table_.end();
}

void Optimizer::set_shards(const DataParallel& ranks) {
  shards_ = nullptr;
  if (!ranks.is_sharded()) return;
  for (const Parameter& parameter : parameters_) {
    if (ranks.holds(parameter)) continue;
    throw Error(format(
        "[{}] ranks must share all parameters of an optimizer; got {}, which DataParallel was not given",
        algorithm_, parameter.value().describe()));
  }
  RefuseOtherTensors refuse;
  visit_state(refuse);
  shards_ = &ranks;
}

/// Throws: Error if parameters are divided between ranks and set_shards() was not called
void Optimizer::require_shards() const {
  if (shards_ != nullptr) return;
  for (const Parameter& parameter : parameters_) {
    if (is_updated_whole(parameter)) continue;
    throw Error(
        format("[{}] parts divided between ranks must be put together for a norm and for state; got {}, of "
               "which this process updates {} elements; try set_shards(DataParallel)",
               algorithm_, parameter.value().describe(), updated_elements(parameter)));
  }
}

void Optimizer::step(double learning_rate, double gradient_scale) {
  if (!std::isfinite(gradient_scale))
    throw Error(format("[{}] gradient_scale must be finite; got {}", algorithm_, gradient_scale));
  count_last_step();
  gather(learning_rate);
  if (!table_.empty())
    update(table_.tensors(), Tensor::full({1}, gradient_scale, DType::f64, parameters_[0].value().device()));
  count_step();
}

void Optimizer::step(double learning_rate, const Tensor& factor) {
  count_last_step();
  gather(learning_rate);
  if (!table_.empty()) update(table_.tensors(), factor);
  factor_ = AsyncReadback(factor);
}

Tensor Optimizer::clipped_step(double learning_rate, double share, double max_norm) {
  if (!(max_norm >= 0))
    throw Error(format("[{}] max_norm must be at least 0; got {}; try 0 for no limit", algorithm_, max_norm));
  require_shards();
  count_last_step();
  gather(learning_rate);
  if (parameters_.empty()) return Tensor::zeros({1}, DType::f64, Device::cpu());
  const GradientNorm found = norm_of_gradients(share, max_norm);
  if (!table_.empty()) update(table_.tensors(), found.factor);
  factor_ = AsyncReadback(found.factor);
  return found.norm;
}

GradientNorm Optimizer::norm_of_gradients(double share, double max_norm) {
  const Tensor like = no_elements();
  if (shards_ == nullptr) return gradient_norm(table_, like, share, max_norm);
  const Tensor norms = shards_->by_rank(gradient_norm(table_, like).norm);  // whose norm is that of all
  norms_of_ranks_.begin("gradient_norm");
  norms_of_ranks_.add(norms);
  norms_of_ranks_.end();
  return gradient_norm(norms_of_ranks_, norms, share, max_norm);
}

void Optimizer::clear_gradients() {
  for (Parameter& parameter : parameters_) parameter.clear_gradient();
}

std::vector<Tensor> Optimizer::zeros_like_parameters() const {
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : parameters_) {
    const Tensor& value = parameter.value();
    const Shape shape = is_updated_whole(parameter) ? value.shape() : Shape{updated_elements(parameter)};
    tensors.push_back(Tensor::zeros(shape, value.dtype(), value.device()));
  }
  return tensors;
}

Tensor Optimizer::no_elements() const {
  const Tensor& value = parameters_[0].value();
  return Tensor::empty({0}, value.dtype(), value.device());
}

std::string Optimizer::state_name(const char* what, std::size_t parameter) const {
  const std::string& name = parameters_[parameter].name();
  return format("{}.{}.{}", algorithm_, what, name.empty() ? std::to_string(parameter) : name);
}

void Optimizer::visit_tensors(OptimizerVisitor& visitor, const char* what,
                              const std::vector<Tensor>& tensors) const {
  if (dynamic_cast<RefuseOtherTensors*>(&visitor) != nullptr) return;
  require_shards();
  const auto visit = [&](std::size_t i, const Tensor& whole) { visitor.tensor(state_name(what, i), whole); };
  if (shards_ != nullptr) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      require_updated_elements(algorithm_.c_str(), parameters_[i], tensors[i]);
    return shards_->visit_whole(parameters_, tensors, visit);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) visit(i, tensors[i]);
}

}  // namespace tapeformer
