#pragma once

#include <tapeformer/autograd/cuda/arena.h>
#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/cuda/readback.h>

#if __has_include(<emulated_cuda.h>)
#include <emulated_cuda.h>  // the host plays the devices, in the tests
#else
#include <cuda_runtime.h>
#endif

#include <atomic>
#include <thread>
#include <vector>

// Devices, for this folder, the kernels and NCCL; other sources include cuda.h.
namespace tapeformer::cuda {

constexpr int kMostDevices = 64;

/// Throws:  as fail(), with the action and the reason
void check(cudaError_t status, const char* doing);
/// Throws:  DeviceError; during a capture NotCapturable, since the same work may succeed outside
[[noreturn]] void fail(const std::string& message);

/// Pinned memory on its way to a device, filled from the front; free again after `sent`.
struct StagingBuffer {
  char* bytes = nullptr;
  std::size_t filled = 0;
  cudaEvent_t sent = nullptr;
};
/// The buffers of one stream, used in turn.
struct Staging {
  std::vector<StagingBuffer> buffers;
  std::size_t current = 0;
};

/// Pinned memory for a Readback.
struct ReadbackSlot {
  void* bytes = nullptr;
  cudaEvent_t arrived = nullptr;
};

/// Places for kernels' errors, and their messages; device_errors.cpp.
class Watches;

/// The state of a Graph, from the beginning of its capture.
struct GraphState {
  int device = 0;
  cudaGraphExec_t exec = nullptr;
  std::size_t nodes = 0;
  std::shared_ptr<Watches> watches;
  std::thread::id maker = std::this_thread::get_id();
};
/// This thread's capture, or nullptr.
extern thread_local GraphState* captured_here;

struct DeviceState {
  explicit DeviceState(int index);
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  int index;
  cudaDeviceProp properties;
  cudaStream_t kernels = nullptr, copies = nullptr;
  cudaEvent_t uploaded = nullptr;  ///< needs no mutex: a later record serves too
  cudaMemPool_t pool = nullptr;
  std::atomic<std::int64_t> in_use_bytes{0}, peak_bytes{0};
  std::atomic<std::int64_t> recent_base_bytes{0}, recent_peak_bytes{0};  ///< see exchange_recent_peak()

  Arena arena;                                 ///< of the graphs
  std::atomic<GraphState*> captured{nullptr};  ///< by any thread

  std::mutex listing;               ///< guards what follows
  std::vector<GraphState*> graphs;  ///< graphs that can run

  std::mutex sending;  ///< held while a thread fills staging buffers or takes a slot; guards what follows
  Staging to_uploads, to_kernels;
  std::vector<ReadbackSlot> slots;
  std::map<const void*, std::size_t> shared_allowed;  ///< of each kernel

  std::mutex releasing;  ///< held while memory is freed, or a capture begins; guards what follows
  std::vector<void*> released_in_capture;
};
/// Makes `device` this thread's current one.
DeviceState& device_state(int device);
/// As device_state(), without throwing, for a device that has been used.
DeviceState& used_device_state(int device) noexcept;

/// Waits for the kernels queued before. Throws: ShapeError if one has left a device error
void finish_kernels(int device);
/// Kernels queued from now on wait for the copies' stream.
void order_behind_uploads(DeviceState& state);
/// Memory for graphs, kept as long as the device has graphs.
void* make_segment(DeviceState& state, std::size_t bytes);
/// Drops unused segments. The caller holds `listing`, no graph is left, and none is being captured.
void drop_unused_segments(DeviceState& state) noexcept;
/// Ends the graphs and frees their memory, for an allocation that finds none. None of their launches may be
/// running. False if a graph belongs to another thread, or one is being captured.
bool evict_graphs(DeviceState& state) noexcept;
/// Frees memory that was released during a capture.
void release_deferred(DeviceState& state) noexcept;
/// Empty Watches, for one graph.
std::shared_ptr<Watches> watches_for_graph(int device);
/// To be called after a launch: checks them until the kernels queued so far have run.
void watch_launch(int device, const std::shared_ptr<Watches>& watches);
/// Waits for queued work if memory is managed, as the host may then read results as soon as a call returns.
void wait_if_host_readable(cudaStream_t stream, const char* doing);

/// Makes `device` the current one and returns its stream of kernels.
cudaStream_t stream_of(int device);
/// Allows a kernel this much dynamic shared memory. Without the call the limit is 48 KiB, static included.
void allow_shared(int device, const void* kernel, std::size_t bytes);
/// Throws: as fail(), naming the kernel, if its launch failed
void check_launch(cudaStream_t stream, const char* name);

}  // namespace tapeformer::cuda
