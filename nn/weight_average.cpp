#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/weight_average.h>

namespace tapeformer {

void average_weights(const std::vector<std::string>& paths, Module& module) {
  if (paths.empty()) throw CheckpointError("there are no files of weights to average");
  const auto weights = weights_of(module);
  std::vector<Tensor> sums;
  for (const auto& [name, value] : weights)
    sums.push_back(Tensor::zeros(value.shape(), DType::f64, Device::cpu()));
  for (const std::string& path : paths) {
    const std::vector<Tensor> values = weights_in(SafetensorsFile::open(path), "", module);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const Tensor value = values[i].to(Device::cpu()).to(DType::f64);
      for (Index j = 0; j < value.elements(); ++j) sums[i].data<double>()[j] += value.data<double>()[j];
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    double* const sum = sums[i].data<double>();
    for (Index j = 0; j < sums[i].elements(); ++j) sum[j] /= static_cast<double>(paths.size());
    weights[i].second.copy_from(sums[i].to(weights[i].second.dtype()));
  }
  for (auto& [name, parameter] : module.named_parameters()) parameter.refresh_shadow();
}

}  // namespace tapeformer
