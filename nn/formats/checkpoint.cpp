#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/formats/safetensors_folder.h>

namespace tapeformer {
namespace {

/// The file's values for weights_of(module), in the same order and with the file's type.
/// Throws:  CheckpointError naming each tensor that is missing, superfluous or of another shape
std::vector<Tensor> weights_in(const SafetensorsFile& file, const std::string& prefix, Module& module) {
  std::vector<std::pair<std::string, Shape>> wanted;
  for (const auto& [name, value] : weights_of(module)) wanted.emplace_back(prefix + name, value.shape());
  SafetensorsFolder(file).check_fit(
      wanted, [&](const std::string& name) { return name.compare(0, prefix.size(), prefix) != 0; });
  std::vector<Tensor> values;
  for (const auto& [name, shape] : wanted) values.push_back(file.tensor(name));
  return values;
}

void set_weights(Module& module, const std::vector<Tensor>& values) {
  const auto weights = weights_of(module);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i].second.copy_from(values[i].to(weights[i].second.dtype()));
  for (auto& [name, parameter] : module.named_parameters()) parameter.refresh_shadow();
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> weights_of(Module& module) {
  std::vector<std::pair<std::string, Tensor>> weights;
  for (const auto& [name, parameter] : module.named_parameters())
    weights.emplace_back(name, parameter.value());
  return weights;
}

void save_weights(const std::string& path, Module& module) { save_safetensors(path, weights_of(module)); }

void load_weights(const std::string& path, Module& module) {
  load_weights(SafetensorsFile::open(path), "", module);
}

void load_weights(const SafetensorsFile& file, const std::string& prefix, Module& module) {
  set_weights(module, weights_in(file, prefix, module));
}

void average_weights(const std::vector<std::string>& paths, Module& module) {
  if (paths.empty()) throw CheckpointError("there are no files of weights to average");
  std::vector<Tensor> sums;
  for (const auto& [name, value] : weights_of(module))
    sums.push_back(Tensor::zeros(value.shape(), DType::f64, Device::cpu()));
  for (const std::string& path : paths) {
    const std::vector<Tensor> values = weights_in(SafetensorsFile::open(path), "", module);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const Tensor value = values[i].to(Device::cpu()).to(DType::f64);
      for (Index j = 0; j < value.elements(); ++j) sums[i].data<double>()[j] += value.data<double>()[j];
    }
  }
  for (const Tensor& sum : sums)
    for (Index j = 0; j < sum.elements(); ++j) sum.data<double>()[j] /= static_cast<double>(paths.size());
  set_weights(module, sums);
}

}  // namespace tapeformer
