#include <tapeformer/optim/optimizer_groups.h>

namespace tapeformer {
namespace {

std::vector<Parameter> parameters_of(const std::vector<OptimizerGroups::Group>& groups) {
  std::vector<Parameter> all;
  for (const OptimizerGroups::Group& group : groups) {
    const std::vector<Parameter>& own = group.optimizer->parameters();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace

OptimizerGroups::OptimizerGroups(std::string algorithm, std::vector<Group> groups)
    : Optimizer(std::move(algorithm), parameters_of(groups)), groups_(std::move(groups)) {}

void OptimizerGroups::visit_state(OptimizerVisitor& visitor) {
  count_last_step();
  for (const Group& group : groups_) group.optimizer->visit_state(visitor);
}

void OptimizerGroups::set_shards(const DataParallel& ranks) {
  Optimizer::set_shards(ranks);
  for (const Group& group : groups_) group.optimizer->set_shards(ranks);
}

void OptimizerGroups::gather(double learning_rate, MultiTensorList& table) {
  for (const Group& group : groups_) group.optimizer->gather(learning_rate * group.rate);
  for (const Parameter& parameter : parameters_)
    if (parameter.gradient().defined()) table.add(parameter, Tensor(), Tensor(), 0);
}

void OptimizerGroups::count_step() {
  for (const Group& group : groups_) group.optimizer->count_step();
}

void OptimizerGroups::update(const kernels::StepTensors&, const Tensor& factor) {
  for (const Group& group : groups_) {
    Optimizer& own = *group.optimizer;
    if (!own.table_.empty()) own.update(own.table_.tensors(), factor);
  }
}

}  // namespace tapeformer
