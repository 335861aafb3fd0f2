#pragma once

#include <tapeformer/autograd/tensor.h>
#include <tapeformer/tests/reference/support.h>

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

class SafetensorsFile;

/// Values that PyTorch computed; see tests/golden/README.md for the names.
class Golden {
 public:
  /// Opens tests/golden/<file>.safetensors, e.g. Golden("ops").
  explicit Golden(const std::string& file);

  /// The names of all cases, sorted.
  std::vector<std::string> cases() const;
  /// "CASE/NAME", e.g. tensor("softmax", "grad.x"). Floating values as `type`; ids and masks as stored.
  Tensor tensor(const std::string& name_of_case, const std::string& name, DType type = DType::f64) const;
  /// The rest of the names that begin with `prefix`: names("linear", "param.") -> {"bias", "weight"}, sorted.
  std::vector<std::string> names(const std::string& name_of_case, const std::string& prefix) const;
  /// Include <nlohmann/json.hpp> to read them.
  nlohmann::ordered_json options(const std::string& name_of_case) const;
  /// An option that is a list of names.
  std::vector<std::string> listed(const std::string& name_of_case, const std::string& option) const;

 private:
  std::shared_ptr<SafetensorsFile> file_;
};

/// The worst relative error of `function`'s output and gradients in `type` against PyTorch's. `names` are the
/// arguments of the case, in the order in which `function` gets them.
double golden_error(const Golden& golden, const std::string& name_of_case,
                    const std::vector<std::string>& names,
                    const std::function<Tensor(const std::vector<Tensor>&)>& function,
                    DType type = DType::f64);

/// The error of `got` against the f64 values, relative to the error of PyTorch's f32 ("CASE/NAME_f32"), both
/// as root mean squares: a maximum depends on the processor.
double times_error_of_pytorch(const Golden& golden, const std::string& name_of_case, const std::string& name,
                              const Tensor& got);

}  // namespace tapeformer
