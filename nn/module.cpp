#include <tapeformer/nn/module.h>

#include <algorithm>

namespace tapeformer {

void ParameterVisitor::on_parameter(const std::string&, Parameter&) {}
void ParameterVisitor::on_buffer(const std::string&, Tensor&) {}
void ParameterVisitor::on_counter(const std::string&, std::uint64_t&) {}
void ParameterVisitor::on_training_mode(bool&) {}
void ParameterVisitor::on_row_parts(const std::string&, const std::vector<Index>&) {}

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

std::vector<std::pair<std::string, Parameter>> Module::named_parameters() {
  struct Collect : ParameterVisitor {
    std::vector<std::pair<std::string, Parameter>> found;
    void on_parameter(const std::string& path, Parameter& parameter) override {
      const auto known = [&](const auto& entry) { return entry.second == parameter; };
      if (std::none_of(found.begin(), found.end(), known)) found.emplace_back(path, parameter);
    }
  } collect;
  visit(collect);
  return collect.found;
}

std::vector<Parameter> Module::parameters() {
  std::vector<Parameter> result;
  for (auto& [name, parameter] : named_parameters()) {
    parameter.set_name(name);
    result.push_back(parameter);
  }
  return result;
}

std::vector<std::pair<std::string, Tensor>> Module::named_buffers() {
  struct Collect : ParameterVisitor {
    std::vector<std::pair<std::string, Tensor>> found;
    void on_buffer(const std::string& path, Tensor& buffer) override { found.emplace_back(path, buffer); }
  } collect;
  visit(collect);
  return collect.found;
}

std::vector<std::pair<std::string, std::uint64_t*>> Module::named_counters() {
  struct Collect : ParameterVisitor {
    std::vector<std::pair<std::string, std::uint64_t*>> found;
    void on_counter(const std::string& path, std::uint64_t& counter) override {
      found.emplace_back(path, &counter);
    }
  } collect;
  visit(collect);
  return collect.found;
}

ModelState Module::state() {
  struct Collect : ParameterVisitor {
    ModelState found;
    void on_buffer(const std::string&, Tensor& buffer) override { found.buffers.push_back(&buffer); }
    void on_counter(const std::string&, std::uint64_t& counter) override {
      found.counters.push_back(&counter);
    }
    void on_training_mode(bool& mode) override { found.modes.push_back(&mode); }
  } collect;
  collect.found.parameters = parameters();
  visit(collect);
  return std::move(collect.found);
}

std::map<std::string, std::vector<Index>> Module::row_parts() {
  struct Collect : ParameterVisitor {
    std::map<std::string, std::vector<Index>> found;
    void on_row_parts(const std::string& path, const std::vector<Index>& rows) override {
      found.emplace(path, rows);
    }
  } collect;
  visit(collect);
  return collect.found;
}

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
  struct Move : ParameterVisitor {
    Device there;
    void on_buffer(const std::string&, Tensor& buffer) override { buffer = buffer.to(there); }
  } move;
  move.there = device;
  visit(move);
  for (auto& [name, parameter] : named_parameters()) parameter.set_value(parameter.value().to(device));
}

void Module::compute_in(DType type) {
  for (auto& [name, parameter] : named_parameters()) parameter.set_shadow(type);
}

void Module::set_training(bool training) {
  struct Set : ParameterVisitor {
    bool value = true;
    void on_training_mode(bool& mode) override { mode = value; }
  } set;
  set.value = training;
  visit(set);
}

}  // namespace tapeformer
