#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/format.h>

#include <algorithm>
#include <limits>

namespace tapeformer::cuda {
namespace {

struct Found {
  int count = 0;
  std::string why_no_more;
};

const Found& found() {
  static const Found result = [] {
    Found found;
    const cudaError_t status = cudaGetDeviceCount(&found.count);
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      found.count = 0;
      found.why_no_more = status == cudaErrorInsufficientDriver
                              ? "there is no NVIDIA driver here, or one older than this build's CUDA"
                              : format("no usable NVIDIA GPU was found ({})", cudaGetErrorString(status));
    } else {
      found.count = std::min(found.count, kMostDevices);
      found.why_no_more = found.count == 0   ? "no NVIDIA GPU was found"
                          : found.count == 1 ? "this machine has one GPU, cuda:0"
                                             : format("this machine has {} GPUs", found.count);
    }
    return found;
  }();
  return result;
}

/// True for an error of the call itself; others may come from any earlier kernel.
bool is_of_this_call(cudaError_t status) {
  switch (status) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorMemoryAllocation:
    case cudaErrorNoKernelImageForDevice: return true;
    default: return false;
  }
}

std::array<DeviceState*, kMostDevices> states{};  // never deleted: they outlive every static tensor

}  // namespace

void check(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  std::string message = format("[cuda] {} failed: {}", doing, cudaGetErrorString(status));
  if (status == cudaErrorNoKernelImageForDevice) {
    message += "; this build has no code for this GPU, try -DTAPEFORMER_CUDA_ARCHITECTURES=native";
  } else if (!is_of_this_call(status)) {
    message += "; a kernel queued earlier may be the cause, try CUDA_LAUNCH_BLOCKING=1, which finds it";
  }
  fail(message);
}

void fail(const std::string& message) {
  if (is_capturing()) throw NotCapturable(message);
  throw DeviceError(message);
}

int device_count() { return found().count; }
std::string availability() { return found().why_no_more; }

DeviceState::DeviceState(int device) : index(device) {
  check(cudaGetDeviceProperties(&properties, device), "asking for a device's properties");
  check(cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking), "making a stream");
  check(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking), "making a stream");
  check(cudaEventCreateWithFlags(&uploaded, cudaEventDisableTiming), "making an event");
  check(cudaDeviceGetDefaultMemPool(&pool, device), "looking for the memory pool");
  std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "setting up the memory pool");
  // Otherwise an upload might get memory that kernels still use, and wait for them.
  int no = 0;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &no),
        "setting up the memory pool");
}

DeviceState& device_state(int device) {
  static std::array<std::once_flag, kMostDevices> made;
  if (device < 0 || device >= device_count()) {
    throw DeviceError(format("[cuda] there is no cuda:{}: {}; try the cpu", device, availability()));
  }
  check(cudaSetDevice(device), "choosing a device");
  const auto at = static_cast<std::size_t>(device);
  std::call_once(made[at], [&] { states[at] = new DeviceState(device); });
  DeviceState& state = *states[at];
  if (const GraphState* captured = state.captured; captured != nullptr && captured != captured_here) {
    throw DeviceError(
        format("[cuda] another thread is capturing on cuda:{}; try again when it has finished", device));
  }
  return state;
}

DeviceState& used_device_state(int device) noexcept {
  static_cast<void>(cudaSetDevice(device));
  return *states[static_cast<std::size_t>(device)];
}

std::string device_name(int device) {
  const cudaDeviceProp& properties = device_state(device).properties;
  return format("{}, {} GiB, sm_{}{}", properties.name, properties.totalGlobalMem >> 30, properties.major,
                properties.minor);
}

void synchronize(int device) {
  refuse_in_capture("waiting for the device");
  check(cudaStreamSynchronize(device_state(device).copies), "waiting for uploads");
  finish_kernels(device);
}

void wait_if_host_readable(cudaStream_t stream, const char* doing) {
  if (is_host_readable() && !is_capturing()) check(cudaStreamSynchronize(stream), doing);
}

cudaStream_t stream_of(int device) { return device_state(device).kernels; }

void allow_shared(int device, const void* kernel, std::size_t bytes) {
  DeviceState& state = device_state(device);
  const std::lock_guard<std::mutex> lock(state.sending);
  std::size_t& allowed = state.shared_allowed[kernel];
  if (bytes <= allowed) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "allowing a kernel more shared memory");
  allowed = bytes;
}

void check_launch(cudaStream_t stream, const char* name) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) check(status, format("queuing {}", name).c_str());
  if (is_host_readable() && !is_capturing())
    check(cudaStreamSynchronize(stream), format("running {}", name).c_str());
}

}  // namespace tapeformer::cuda
