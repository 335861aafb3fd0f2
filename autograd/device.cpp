#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>

#include <atomic>

namespace tapeformer {
namespace {

Device chosen_device;
std::atomic<MatmulPrecision> chosen_precision{MatmulPrecision::f32};

}  // namespace

Device Device::named(const std::string& name) {
  if (name == "cpu") return cpu();
  const int count = cuda::device_count();
  if (name == "auto") return count > 0 ? cuda(0) : cpu();
  const std::string number = name == "cuda" ? "0" : name.rfind("cuda:", 0) == 0 ? name.substr(5) : "";
  if (number.empty() || number.size() > 4 || number.find_first_not_of("0123456789") != std::string::npos) {
    throw DeviceError(format("[device] a device must be cpu, cuda, cuda:N or auto; got {}; try cpu", name));
  }
  const int index = std::stoi(number);
  if (index >= count) {
    throw DeviceError(
        format("[device] there is no {}: {}; try cpu", cuda(index).text(), cuda::availability()));
  }
  return cuda(index);
}

Device default_device() { return chosen_device; }
void set_default_device(Device device) { chosen_device = device; }

void set_matmul_precision(MatmulPrecision precision) { chosen_precision = precision; }
MatmulPrecision matmul_precision() { return chosen_precision; }

}  // namespace tapeformer
