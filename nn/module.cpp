#include <tapeformer/nn/module.h>

#include <set>

namespace tapeformer {
namespace {

/// Everything that a module's visit() names.
struct Found : ParameterVisitor {
  explicit Found(Module& module) { module.visit(*this); }

  void on_parameter(const std::string& path, Parameter& parameter) override {
    if (states.insert(parameter.state()).second) parameters.emplace_back(path, parameter);
  }
  void on_buffer(const std::string&, Tensor& buffer) override { buffers.push_back(&buffer); }
  void on_counter(const std::string& path, std::uint64_t& counter) override {
    counters.emplace_back(path, &counter);
  }
  void on_training_mode(bool& mode) override { modes.push_back(&mode); }
  void on_row_parts(const std::string& path, const std::vector<Index>& rows) override {
    row_parts.emplace(path, rows);
  }

  std::set<const ParameterState*> states;  // of `parameters`
  std::vector<std::pair<std::string, Parameter>> parameters;
  std::vector<Tensor*> buffers;
  std::vector<std::pair<std::string, std::uint64_t*>> counters;
  std::vector<bool*> modes;
  std::map<std::string, std::vector<Index>> row_parts;
};

}  // namespace

void ParameterVisitor::parameter(const std::string& name, Parameter& member) {
  if (!member.defined()) return;
  if (member.name().empty()) member.set_name(path(name));  // Tape::backward reports parameters without a name
  on_parameter(path(name), member);
}
void ParameterVisitor::buffer(const std::string& name, Tensor& member) {
  if (member.defined()) on_buffer(path(name), member);
}
void ParameterVisitor::counter(const std::string& name, std::uint64_t& member) {
  on_counter(path(name), member);
}

void ParameterVisitor::child(const std::string& name, Module& member) {
  const std::size_t length = prefix_.size();
  prefix_ += name + ".";
  member.visit(*this);
  prefix_.resize(length);
}

std::vector<std::pair<std::string, Parameter>> Module::named_parameters() { return Found(*this).parameters; }

std::vector<Parameter> Module::parameters() {
  std::vector<Parameter> result;
  for (auto& [name, parameter] : named_parameters()) {
    parameter.set_name(name);
    result.push_back(parameter);
  }
  return result;
}

std::vector<std::pair<std::string, std::uint64_t*>> Module::named_counters() { return Found(*this).counters; }

ModelState Module::state() {
  ModelState state;
  state.parameters = parameters();
  const Found found(*this);
  state.buffers = found.buffers;
  for (const auto& [path, counter] : found.counters) state.counters.push_back(counter);
  state.modes = found.modes;
  return state;
}

std::map<std::string, std::vector<Index>> Module::row_parts() { return Found(*this).row_parts; }

Index Module::parameter_count() {
  Index count = 0;
  for (const auto& [name, parameter] : named_parameters()) count += parameter.value().elements();
  return count;
}

void Module::clear_gradients() {
  for (auto& [name, parameter] : named_parameters()) parameter.clear_gradient();
}

void Module::to(DType type) {
  for (auto& [name, parameter] : named_parameters()) parameter.set_value(parameter.value().to(type));
}

void Module::to(Device device) {
  for (Tensor* const buffer : Found(*this).buffers) *buffer = buffer->to(device);
  for (auto& [name, parameter] : named_parameters()) parameter.set_value(parameter.value().to(device));
}

void Module::compute_in(DType type) {
  for (auto& [name, parameter] : named_parameters()) parameter.set_shadow(type);
}

void Module::set_training(bool training) {
  for (bool* const mode : Found(*this).modes) *mode = training;
}

}  // namespace tapeformer
