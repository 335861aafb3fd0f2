#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/adapter.h>
#include <tapeformer/nn/linear.h>

#include <fnmatch.h>

#include <algorithm>

namespace tapeformer {
namespace {

class Matching : public ParameterVisitor {
 public:
  explicit Matching(const AdapterConfig& config) : unused(config.layers), config_(config) {}

  void on_linear(const std::string& path, Linear& layer) override {
    names.push_back(path);
    if (matches_any(path)) layers.push_back(&layer);
  }

  std::vector<std::string> names, unused;
  std::vector<Linear*> layers;

 private:
  bool matches_any(const std::string& path) {
    bool found = false;
    for (const std::string& pattern : config_.layers) {
      if (fnmatch(pattern.c_str(), path.c_str(), 0) != 0) continue;
      unused.erase(std::remove(unused.begin(), unused.end(), pattern), unused.end());
      found = true;
    }
    return found;
  }

  const AdapterConfig& config_;
};

/// Each weight under all its names.
struct WholeWeights : ParameterVisitor {
  void on_linear(const std::string& path, Linear& layer) override {
    if (layer.is_adapted()) found.emplace(path + ".weight", layer.whole_weight());
  }
  void on_parameter(const std::string& path, Parameter& parameter) override {
    found.emplace(path, parameter.value());
  }

  std::map<std::string, Tensor> found;
};

struct Freezing : ParameterVisitor {
  void on_parameter(const std::string& path, Parameter& parameter) override {
    parameter.set_trainable(is_of_adapter(path));
  }
};

}  // namespace

bool is_of_adapter(const std::string& path) {
  const std::string name = path.substr(path.rfind('.') + 1);
  return name == kAdapterA || name == kAdapterB;
}

void AdapterConfig::describe(const FieldVisitor& field) {
  const FieldVisitor in_part = field.in_part("low-rank adapters");
  in_part("lora", rank, "rank of low-rank adapters, which are trained in place of all else; 0 for none",
          kSize);
  in_part("lora_alpha", alpha, "what adapters add is multiplied by this over --lora", kPositive);
  in_part("lora_targets", layers,
          "the linear layers that have adapters, by patterns of their names: 'layers.*.attention.*'");
}

void add_adapters(Module& model, const AdapterConfig& config, Generator& random) {
  if (config.rank == 0) return;
  Matching matching(config);
  model.visit(matching);
  if (!matching.unused.empty())
    throw Error(format("[lora] a pattern of layers must match a linear layer; got {}; the names are {}",
                       matching.unused[0], joined(matching.names, ", ")));
  for (Linear* const layer : matching.layers)
    layer->adapt(config.rank, config.alpha / static_cast<double>(config.rank), random);
  Freezing freezing;
  model.visit(freezing);
}

void copy_weights(Module& from, Module& into) {
  const NoGradGuard pause;
  WholeWeights weights;
  from.visit(weights);
  for (auto& [name, parameter] : into.named_parameters()) {
    const auto found = weights.found.find(name);
    if (found == weights.found.end()) continue;
    parameter.value().copy_from(found->second);
    parameter.refresh_shadow();
  }
}

}  // namespace tapeformer
