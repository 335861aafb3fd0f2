#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/safetensors.h>
#include <tapeformer/tests/reference/golden.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace tapeformer {

Golden::Golden(const std::string& file)
    : file_(std::make_shared<SafetensorsFile>(
          SafetensorsFile::open(TAPEFORMER_SOURCE_DIR "/tests/golden/" + file + ".safetensors"))) {}

std::vector<std::string> Golden::cases() const {
  std::vector<std::string> names;
  for (const auto& [name, options] : file_->metadata()) names.push_back(name);
  if (names.empty()) throw Error("a golden file names no cases");
  return names;
}

Tensor Golden::tensor(const std::string& name_of_case, const std::string& name, DType type) const {
  const Tensor x = file_->tensor(name_of_case + "/" + name);
  return is_floating(x.dtype()) ? x.to(type) : x;
}

std::vector<std::string> Golden::names(const std::string& name_of_case, const std::string& prefix) const {
  const std::string start = name_of_case + "/" + prefix;
  std::vector<std::string> result;
  for (const std::string& name : file_->names()) {
    if (name.rfind(start, 0) == 0) result.push_back(name.substr(start.size()));
  }
  std::sort(result.begin(), result.end());
  return result;
}

nlohmann::ordered_json Golden::options(const std::string& name_of_case) const {
  return parse_json(file_->metadata().at(name_of_case));
}

std::vector<std::string> Golden::listed(const std::string& name_of_case, const std::string& option) const {
  return options(name_of_case).at(option).get<std::vector<std::string>>();
}

double golden_error(const Golden& golden, const std::string& name_of_case,
                    const std::vector<std::string>& names,
                    const std::function<Tensor(const std::vector<Tensor>&)>& function, DType type) {
  Tape tape;
  std::vector<Tensor> inputs, differentiated;
  std::vector<std::string> gradients;
  for (const std::string& name : names) {
    inputs.push_back(golden.tensor(name_of_case, "in." + name, type));
    if (golden.names(name_of_case, "grad." + name).empty()) continue;
    tape.watch(inputs.back());
    differentiated.push_back(inputs.back());
    gradients.push_back("grad." + name);
  }
  const Tensor y = function(inputs);
  double worst = relative_error(y, golden.tensor(name_of_case, "out"));
  const std::vector<Tensor> got =
      tape.gradients(y, differentiated, golden.tensor(name_of_case, "seed", type));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = relative_error(got[i], golden.tensor(name_of_case, gradients[i]));
    if (error > worst || std::isnan(error)) worst = error;
  }
  return worst;
}

double times_error_of_pytorch(const Golden& golden, const std::string& name_of_case, const std::string& name,
                              const Tensor& got) {
  const Tensor exact = golden.tensor(name_of_case, name);
  return rms_error(got, exact) / rms_error(golden.tensor(name_of_case, name + "_f32"), exact);
}

}  // namespace tapeformer
