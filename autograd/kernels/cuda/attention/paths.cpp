#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/cuda/attention/paths.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

namespace tapeformer::kernels {
namespace {

/// The shared memory of a block, by compute capability; 0 without tensor cores for bf16.
/// Source:  CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability"
int shared_kib(int major, int minor) {
  if (major < 8) return 0;
  if (major == 8) return minor == 0 || minor == 7 ? 163 : 99;
  return major < 12 ? 227 : 99;
}

}  // namespace

bool has_tensor_cores(Cuda on, std::size_t shared_bytes) {
  static std::array<std::atomic<int>, 64> known{};  // KiB plus one; 0 if unknown
  if (on.device < 0 || on.device >= static_cast<int>(known.size())) return false;
  std::atomic<int>& answer = known[static_cast<std::size_t>(on.device)];
  if (answer == 0) {
    cudaDeviceProp properties;
    cuda::check(cudaGetDeviceProperties(&properties, on.device), "asking for a device's properties");
    answer = 1 + shared_kib(properties.major, properties.minor);
  }
  return answer > 1 && shared_bytes <= static_cast<std::size_t>(answer - 1) * 1024;
}

AttentionPath fastest_attention_path() {
  const char* set = std::getenv("TAPEFORMER_ATTENTION");
  const std::string name = set == nullptr ? "hopper" : set;
  if (name == "hopper") return AttentionPath::hopper;
  if (name == "tensor_cores") return AttentionPath::tensor_cores;
  if (name == "plain") return AttentionPath::plain;
  throw DeviceError("[attention] TAPEFORMER_ATTENTION is hopper, tensor_cores or plain; got " + name +
                    "; try without it");
}

}  // namespace tapeformer::kernels
