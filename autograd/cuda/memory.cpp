#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/format.h>

#include <algorithm>
#include <cstdlib>

namespace tapeformer::cuda {
namespace {

std::string mebibytes(std::int64_t bytes) { return format("{} MiB", (bytes + (1 << 20) - 1) >> 20); }

std::int64_t held_bytes(const DeviceState& state) {
  if (is_host_readable()) return state.in_use_bytes;
  std::uint64_t bytes = 0;
  check(cudaMemPoolGetAttribute(state.pool, cudaMemPoolAttrReservedMemCurrent, &bytes),
        "asking the memory pool what it holds");
  return static_cast<std::int64_t>(bytes);
}

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for the free memory");
  return free;
}

cudaError_t request(void** block, std::size_t bytes, cudaStream_t stream) {
  if (!is_host_readable()) return cudaMallocAsync(block, bytes, stream);
  // The driver would grant more managed memory than the device has, and page.
  if (bytes > free_bytes()) return cudaErrorMemoryAllocation;
  return cudaMallocManaged(block, bytes, cudaMemAttachGlobal);
}

void raise(std::atomic<std::int64_t>& most, std::int64_t now) {
  std::int64_t before = most;
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
}

/// nullptr if the device does not have enough; in a capture it throws NotCapturable instead.
void* take(DeviceState& state, std::size_t bytes, cudaStream_t stream) {
  void* block = nullptr;
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  cudaError_t status = request(&block, size, stream);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    refuse_in_capture("memory that is not free at once");
    // Memory may still be used by kernels, or be in pieces that are too small.
    check(cudaStreamSynchronize(state.copies), "waiting for uploads");
    check(cudaStreamSynchronize(state.kernels), "waiting for kernels");
    check(cudaMemPoolTrimTo(state.pool, 0), "trimming the memory pool");
    status = request(&block, size, stream);
  }
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  check(status, "allocating memory");
  const std::int64_t now = state.in_use_bytes += static_cast<std::int64_t>(bytes);
  raise(state.peak_bytes, now);
  raise(state.recent_peak_bytes, now);
  return block;
}

[[noreturn]] void throw_lack(const DeviceState& state, std::size_t bytes) {
  const auto asked = mebibytes(static_cast<std::int64_t>(bytes));
  throw DeviceError(
      format("[memory] cuda:{} does not have {} left; asked={}, held={}, in use={}, free={}; try a smaller "
             "batch, --recompute-layers or --precision bf16",
             state.index, asked, asked, mebibytes(held_bytes(state)), mebibytes(state.in_use_bytes),
             mebibytes(static_cast<std::int64_t>(free_bytes()))));
}

/// Memory for work outside graphs, which has precedence: graphs can be made again.
void* take_before_graphs(DeviceState& state, std::size_t bytes, cudaStream_t stream) {
  void* block = take(state, bytes, stream);
  if (block == nullptr && evict_graphs(state)) block = take(state, bytes, stream);
  if (block == nullptr) throw_lack(state, bytes);
  return block;
}

/// Frees memory on the stream of kernels, after a capture if there is one.
void give_back(DeviceState& state, void* block) noexcept {
  const std::lock_guard<std::mutex> lock(state.releasing);
  if (state.captured != nullptr) return state.released_in_capture.push_back(block);
  // An error here is an earlier one, which the next wait reports; or the process is ending.
  static_cast<void>(is_host_readable() ? cudaFree(block) : cudaFreeAsync(block, state.kernels));
}

}  // namespace

bool is_host_readable() {
  static const bool managed = [] {
    const char* kind = std::getenv("TAPEFORMER_CUDA_MEMORY");
    if (kind == nullptr || std::strcmp(kind, "") == 0) return false;
    if (std::strcmp(kind, "managed") != 0) {
      throw DeviceError(std::string("[cuda] TAPEFORMER_CUDA_MEMORY must be managed or unset; got ") + kind);
    }
    return true;
  }();
  return managed;
}

void* allocate(int device, std::size_t bytes) {
  DeviceState& state = device_state(device);
  if (!is_capturing()) return take_before_graphs(state, bytes, state.kernels);
  return state.arena.allocate(bytes, [&](std::size_t size) { return make_segment(state, size); });
}

void* allocate_for_upload(int device, std::size_t bytes) {
  refuse_in_capture("an upload");
  DeviceState& state = device_state(device);
  return take_before_graphs(state, bytes, state.copies);
}

void release(int device, void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  DeviceState& state = used_device_state(device);
  if (state.arena.release(block)) return;
  state.in_use_bytes -= static_cast<std::int64_t>(bytes);
  give_back(state, block);
}

void release_deferred(DeviceState& state) noexcept {
  std::vector<void*> blocks;
  {
    const std::lock_guard<std::mutex> lock(state.releasing);
    blocks.swap(state.released_in_capture);
  }
  for (void* const block : blocks) give_back(state, block);
}

void* make_segment(DeviceState& state, std::size_t bytes) {
  void* const segment = take(state, bytes, state.copies);  // the other stream may be captured
  if (segment == nullptr) throw_lack(state, bytes);
  return segment;
}

void drop_unused_segments(DeviceState& state) noexcept {
  state.arena.drop_free([&](void* segment, std::size_t bytes) {
    state.in_use_bytes -= static_cast<std::int64_t>(bytes);
    give_back(state, segment);
  });
}

bool is_graph_memory(int device, const void* from) { return device_state(device).arena.contains(from); }

std::int64_t exchange_recent_peak(int device) {
  DeviceState& state = device_state(device);
  const std::int64_t now = state.in_use_bytes, base = state.recent_base_bytes.exchange(now),
                     peak = state.recent_peak_bytes.exchange(now);
  return std::max<std::int64_t>(0, peak - base);
}

MemoryStatistics memory_statistics(int device) {
  const DeviceState& state = device_state(device);
  return {held_bytes(state), state.in_use_bytes, state.peak_bytes};
}

}  // namespace tapeformer::cuda
