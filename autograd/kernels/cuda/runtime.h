#pragma once

#include <tapeformer/autograd/kernels/cuda.h>
#include <tapeformer/autograd/kernels/write.h>

#if __has_include(<emulated_cuda.h>)
#include <emulated_cuda.h>  // the host plays the devices, in the tests
#else
#include <cuda_runtime.h>
#endif

#include <atomic>
#include <mutex>
#include <vector>

/// What the sources of this folder share about devices; the rest of the library knows kernels/cuda.h alone.
namespace tapeformer::cuda {

/// Throws: DeviceError that says what was being done and why it failed
void check(cudaError_t status, const char* doing);

/// Pinned memory on its way to a device; free again when `sent` has happened.
struct StagingBuffer {
  char* bytes = nullptr;
  cudaEvent_t sent = nullptr;
};

struct DeviceState {
  explicit DeviceState(int index);
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  int index;
  cudaStream_t kernels = nullptr, copies = nullptr;
  cudaMemPool_t pool = nullptr;
  std::atomic<std::int64_t> in_use_bytes{0}, peak_bytes{0};

  std::mutex sending;  ///< held while a thread fills staging buffers; guards what follows
  std::vector<StagingBuffer> buffers;
  std::size_t next_buffer = 0;
  cudaEvent_t uploaded = nullptr;
};
/// Makes `device` this thread's current one.
DeviceState& device_state(int device);
/// The same for what must not throw: of a device that has been used.
DeviceState& used_device_state(int device) noexcept;

/// Waits for the kernels queued before. Throws: ShapeError if one has left an offence
void finish_kernels(int device);
/// In managed memory the host may look at results as soon as a call returns: waits for what was queued.
void wait_if_host_readable(cudaStream_t stream, const char* doing);

}  // namespace tapeformer::cuda

namespace tapeformer::kernels {

/// Makes `on` the current device; its stream of kernels.
cudaStream_t stream_of(Cuda on);
/// Allows a kernel more than 48 KiB of shared memory.
void allow_shared(const void* kernel, std::size_t bytes);
/// Throws: DeviceError that names the kernel if its launch failed
void check_launch(cudaStream_t stream, const char* name);

}  // namespace tapeformer::kernels
