#include <tapeformer/autograd/cuda/runtime.h>

#include <algorithm>

namespace tapeformer::cuda {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::size_t kMostBuffers = 16;

bool is_sent(const StagingBuffer& buffer) {
  const cudaError_t status = cudaEventQuery(buffer.sent);
  if (status == cudaSuccess) return true;
  if (status != cudaErrorNotReady) check(status, "checking an upload");
  static_cast<void>(cudaGetLastError());  // otherwise the next launch would seem to have failed
  return false;
}

StagingBuffer new_buffer() {
  StagingBuffer buffer;
  void* bytes = nullptr;
  check(cudaHostAlloc(&bytes, kBufferBytes, cudaHostAllocPortable), "allocating pinned memory");
  buffer.bytes = static_cast<char*>(bytes);
  check(cudaEventCreateWithFlags(&buffer.sent, cudaEventDisableTiming), "making an event");
  return buffer;
}

/// A buffer with room for `size` more bytes: the current one, else one whose bytes have been sent, else a new
/// one, else the next in turn, after a wait.
StagingBuffer& buffer_for(Staging& staging, std::size_t size) {
  std::vector<StagingBuffer>& buffers = staging.buffers;
  if (!buffers.empty()) {
    StagingBuffer& current = buffers[staging.current];
    if (current.filled + size <= kBufferBytes) return current;
  }
  for (std::size_t i = 1; i <= buffers.size(); ++i) {
    const std::size_t at = (staging.current + i) % buffers.size();
    if (!is_sent(buffers[at])) continue;
    staging.current = at;
    buffers[at].filled = 0;
    return buffers[at];
  }
  if (buffers.size() < kMostBuffers) {
    buffers.push_back(new_buffer());
    staging.current = buffers.size() - 1;
    return buffers.back();
  }
  staging.current = (staging.current + 1) % buffers.size();
  StagingBuffer& buffer = buffers[staging.current];
  check(cudaEventSynchronize(buffer.sent), "waiting for an upload");
  buffer.filled = 0;
  return buffer;
}

/// Copies through pinned buffers, so that the host continues as soon as they are filled.
void send(Staging& staging, cudaStream_t stream, void* to, const void* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kBufferBytes) {
    const std::size_t size = std::min(kBufferBytes, bytes - at);
    StagingBuffer& buffer = buffer_for(staging, size);
    char* const place = buffer.bytes + buffer.filled;
    std::memcpy(place, static_cast<const char*>(from) + at, size);
    buffer.filled += (size + 15) / 16 * 16;
    check(cudaMemcpyAsync(static_cast<char*>(to) + at, place, size, cudaMemcpyHostToDevice, stream),
          "copying to a GPU");
    check(cudaEventRecord(buffer.sent, stream), "recording an event");
  }
}

}  // namespace

void order_behind_uploads(DeviceState& state) {
  check(cudaEventRecord(state.uploaded, state.copies), "recording an event");
  check(cudaStreamWaitEvent(state.kernels, state.uploaded, 0), "waiting for an upload");
}

void upload(int device, void* to, const void* from, std::size_t bytes) {
  refuse_in_capture("an upload");
  DeviceState& state = device_state(device);
  const std::lock_guard<std::mutex> lock(state.sending);
  send(state.to_uploads, state.copies, to, from, bytes);
  order_behind_uploads(state);
  wait_if_host_readable(state.kernels, "copying to a GPU");
}

void overwrite(int device, void* to, const void* from, std::size_t bytes) {
  refuse_in_capture("an upload");
  DeviceState& state = device_state(device);
  const std::lock_guard<std::mutex> lock(state.sending);
  send(state.to_kernels, state.kernels, to, from, bytes);
  wait_if_host_readable(state.kernels, "copying to a GPU");
}

void download(int device, void* to, const void* from, std::size_t bytes) {
  refuse_in_capture("a read of the device's memory");
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
  // Copies through the host, which works between any two devices; training steps do not need it.
  std::vector<char> here(bytes);
  download(from_device, here.data(), from, bytes);
  overwrite(to_device, to, here.data(), bytes);
}

Readback::Readback(int device, const void* from, std::size_t bytes)
    : device_(device), slot_(std::make_unique<ReadbackSlot>()) {
  refuse_in_capture("a read of the device's memory");
  if (bytes > kMostBytes) throw DeviceError("[cuda] a Readback is for a few bytes; try download()");
  DeviceState& state = device_state(device);
  const std::lock_guard<std::mutex> lock(state.sending);
  if (state.slots.empty()) {
    check(cudaHostAlloc(&slot_->bytes, kMostBytes, cudaHostAllocPortable), "allocating pinned memory");
    check(cudaEventCreateWithFlags(&slot_->arrived, cudaEventDisableTiming), "making an event");
  } else {
    *slot_ = state.slots.back();
    state.slots.pop_back();
  }
  check(cudaMemcpyAsync(slot_->bytes, from, bytes, cudaMemcpyDeviceToHost, state.kernels),
        "copying from a GPU");
  check(cudaEventRecord(slot_->arrived, state.kernels), "recording an event");
  wait_if_host_readable(state.kernels, "copying from a GPU");
}

Readback::~Readback() {
  DeviceState& state = used_device_state(device_);
  // The bytes may still be in flight; the slot's next use must come after them.
  static_cast<void>(cudaEventSynchronize(slot_->arrived));
  const std::lock_guard<std::mutex> lock(state.sending);
  state.slots.push_back(*slot_);
}

const void* Readback::wait() {
  refuse_in_capture("a read of the device's memory");
  device_state(device_);
  check(cudaEventSynchronize(slot_->arrived), "waiting for a number");
  report_device_errors(device_);
  return slot_->bytes;
}

}  // namespace tapeformer::cuda
