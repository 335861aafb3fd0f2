#pragma once

#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/dtype.h>
#include <tapeformer/autograd/shape.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>

/// NVIDIA GPUs for storage, tensors and operations, in plain C++; other folders include device.h. A build
/// without CUDA has no device: functions that need one throw DeviceError, others do nothing. Each device has
/// one stream of kernels, which run in the order of the calls. A function waits only where its comment says
/// so, or when memory, pinned buffers or slots for errors run out.
namespace tapeformer::cuda {

/// Memory of a device, from the toolkit's pool, which keeps freed memory; in a capture, memory of the graphs.
/// Ordered with the device's kernels.
/// Throws:  DeviceError with the request, the memory in use, and a remedy
void* allocate(int device, std::size_t bytes);
void release(int device, void* block, std::size_t bytes) noexcept;
/// True if the host may read and write device memory as its own: in tests, where memory is managed
/// (TAPEFORMER_CUDA_MEMORY=managed) and the host waits for each kernel.
bool is_host_readable();

/// Copies through pinned memory on a stream of its own, during kernels queued before; kernels queued later
/// see the bytes. Returns when `from` may be reused. `to` comes from allocate_for_upload().
void upload(int device, void* to, const void* from, std::size_t bytes);
/// Memory that an upload may fill without waiting for the queued kernels. Freed by release().
void* allocate_for_upload(int device, std::size_t bytes);
/// Copies to memory that kernels may be using, in order with them. Returns when `from` may be reused.
void overwrite(int device, void* to, const void* from, std::size_t bytes);
/// Waits for the kernels queued before.
void download(int device, void* to, const void* from, std::size_t bytes);
void copy(int device, void* to, const void* from, std::size_t bytes);
/// From one device to another, through the host. Waits for the kernels queued before on `from_device`.
void copy_across(int to_device, void* to, int from_device, const void* from, std::size_t bytes);

/// Fills elements of any type. Here and in convert() a number becomes true unless it is 0, and a bool 0 or 1.
void fill(int device, DType type, Index count, double value, void* to);
void convert(int device, DType from_type, const void* from, DType to_type, void* to, Index count);

/// A kernel's first finding of wrong input, in memory that device and host share.
struct DeviceErrorSlot {
  std::int64_t position;  ///< -1: none
  std::int32_t value;
};
/// Calls `queue` with a slot for the error of the kernel that it queues; other threads wait for the device
/// before that or after. If the kernel leaves an error, a later call of report_device_errors() throws the
/// result of `describe` as a ShapeError.
void watch_for_device_error(int device, std::function<std::string(const DeviceErrorSlot&)> describe,
                            const std::function<void(DeviceErrorSlot*)>& queue);
/// Throws the first error that kernels have left, or the failure of the device; a capture postpones this.
/// Waits for the kernels only if there is an error, since they may find an earlier one. Called before each
/// operation; waits for a device throw likewise.
void report_device_errors(int device);
/// From now on every call that waits for the device's kernels, or queues an operation there, throws
/// `failure`, since its memory is no longer valid; nullptr clears the failure. Any thread may call it.
void set_failure(int device, std::exception_ptr failure);

}  // namespace tapeformer::cuda
