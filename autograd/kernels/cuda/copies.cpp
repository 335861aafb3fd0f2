#include <tapeformer/autograd/kernels/cuda/runtime.h>

#include <algorithm>
#include <cstring>

namespace tapeformer::cuda {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::size_t kMostBuffers = 16;

/// One whose bytes have been sent: any, else a new one, else the one that was filled first.
StagingBuffer& free_buffer(DeviceState& state) {
  const std::size_t count = state.buffers.size();
  for (std::size_t i = 0; i < count; ++i) {
    StagingBuffer& buffer = state.buffers[(state.next_buffer + i) % count];
    const cudaError_t status = cudaEventQuery(buffer.sent);
    if (status == cudaSuccess) return buffer;
    if (status != cudaErrorNotReady) check(status, "looking at an upload");
    static_cast<void>(cudaGetLastError());  // else the next launch would be taken to have failed
  }
  if (count < kMostBuffers) {
    StagingBuffer buffer;
    void* bytes = nullptr;
    check(cudaHostAlloc(&bytes, kBufferBytes, cudaHostAllocPortable), "allocating pinned memory");
    buffer.bytes = static_cast<char*>(bytes);
    check(cudaEventCreateWithFlags(&buffer.sent, cudaEventDisableTiming), "making an event");
    state.buffers.push_back(buffer);
    return state.buffers.back();
  }
  StagingBuffer& buffer = state.buffers[state.next_buffer];
  state.next_buffer = (state.next_buffer + 1) % count;
  check(cudaEventSynchronize(buffer.sent), "waiting for an upload");
  return buffer;
}

/// By way of pinned buffers, so that the host goes on as soon as they are filled.
void send(DeviceState& state, cudaStream_t stream, void* to, const void* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kBufferBytes) {
    const std::size_t size = std::min(kBufferBytes, bytes - at);
    const StagingBuffer& buffer = free_buffer(state);
    std::memcpy(buffer.bytes, static_cast<const char*>(from) + at, size);
    check(cudaMemcpyAsync(static_cast<char*>(to) + at, buffer.bytes, size, cudaMemcpyHostToDevice, stream),
          "copying to a GPU");
    check(cudaEventRecord(buffer.sent, stream), "recording an event");
  }
}

}  // namespace

void upload(int device, void* to, const void* from, std::size_t bytes) {
  DeviceState& state = device_state(device);
  const std::lock_guard<std::mutex> lock(state.sending);
  send(state, state.copies, to, from, bytes);
  check(cudaEventRecord(state.uploaded, state.copies), "recording an event");
  check(cudaStreamWaitEvent(state.kernels, state.uploaded, 0), "waiting for an upload");
  wait_if_host_readable(state.kernels, "copying to a GPU");
}

void overwrite(int device, void* to, const void* from, std::size_t bytes) {
  DeviceState& state = device_state(device);
  const std::lock_guard<std::mutex> lock(state.sending);
  send(state, state.kernels, to, from, bytes);
  wait_if_host_readable(state.kernels, "copying to a GPU");
}

void download(int device, void* to, const void* from, std::size_t bytes) {
  const DeviceState& state = device_state(device);
  if (bytes > 0) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, state.kernels), "copying from a GPU");
  }
  finish_kernels(device);
}

void copy(int device, void* to, const void* from, std::size_t bytes) {
  const DeviceState& state = device_state(device);
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state.kernels), "copying on a GPU");
  wait_if_host_readable(state.kernels, "copying on a GPU");
}

void copy_across(int to_device, void* to, int from_device, const void* from, std::size_t bytes) {
  // Through the host: works between any two devices, and nothing in a training step comes here.
  std::vector<char> here(bytes);
  download(from_device, here.data(), from, bytes);
  overwrite(to_device, to, here.data(), bytes);
}

}  // namespace tapeformer::cuda
