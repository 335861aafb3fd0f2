#pragma once

#include <tapeformer/optim/optimizers.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace tapeformer {

/// Gives the parameter a gradient as a backward pass would.
inline void set_gradient(const Parameter& parameter, const Tensor& gradient) {
  parameter.state()->gradient = gradient;
  parameter.state()->has_gradient = true;
}

/// The weight [2,3] and bias [3] that tests/golden/print_optim.py trains.
struct OptimCase {
  explicit OptimCase(DType type)
      : weight(Tensor::from<double>({0.5, -1.25, 2.0, 0.75, -0.3, 1.1}, {2, 3}).to(type)),
        bias(Tensor::from<double>({0.1, -0.2, 0.3}).to(type)) {
    weight.set_name("layer.weight");
    bias.set_name("layer.bias");
  }

  std::vector<Parameter> parameters() const { return {weight, bias}; }

  void set_gradients(int step) const {
    const auto fill = [step](const Parameter& parameter, double shift) {
      std::vector<double> values;
      for (Index i = 0; i < parameter.value().elements(); ++i) {
        values.push_back(std::sin(static_cast<double>((step + 1) * (i + 1)) + shift));
      }
      set_gradient(parameter, Tensor::from(values, parameter.value().shape()).to(parameter.value().dtype()));
    };
    fill(weight, 0);
    fill(bias, 0.5);
  }

  void run(Optimizer& optimizer, int from, int to) {
    const double rates[] = {0.1, 0.05, 0.02, 0.2, 0.01};
    for (int step = from; step < to; ++step) {
      set_gradients(step);
      if (step == 2) bias.clear_gradient();
      optimizer.step(rates[step % 5]);
    }
  }

  Parameter weight, bias;
};

/// Every kind of optimizer, those with momentum too, and a group with a kind of its own.
inline std::vector<OptimizerConfig> every_optimizer() {
  std::vector<OptimizerConfig> configs;
  for (const OptimizerKind& kind : optimizer_kinds()) configs.push_back({kind.name, {}});
  configs.push_back({"sgd", {{"momentum", 0.9}}});
  configs.push_back({"adamw", {}, parameter_groups_of({"*.bias:optimizer=lion"})});
  return configs;
}

/// max |x - expected|.
inline double distance(const Tensor& x, const std::vector<double>& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    largest = larger(largest, std::abs(x.at(static_cast<Index>(i)) - expected[i]));
  return largest;
}

/// Keeps a copy of an optimizer's state, or puts it back.
struct OptimizerCopy : OptimizerVisitor {
  void tensor(const std::string& name, const Tensor& value) override {
    if (restores) {
      value.copy_from(tensors.at(name));
    } else {
      tensors[name] = value.clone();
    }
  }
  void counter(const std::string& name, std::int64_t& value) override {
    if (restores) {
      value = counters.at(name);
    } else {
      counters[name] = value;
    }
  }
  bool restores = false;
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::int64_t> counters;
};

}  // namespace tapeformer
