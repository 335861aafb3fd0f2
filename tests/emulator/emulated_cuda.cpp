#include <tapeformer/tests/emulator/emulated_state.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

using namespace tapeformer::emulator;

namespace {

constexpr std::align_val_t kAlignment{512};

thread_local cudaError_t last_error = cudaSuccess;

std::size_t setting(const char* name, std::size_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : static_cast<std::size_t>(std::strtoull(value, nullptr, 10));
}
int device_count() {
  static const int count =
      static_cast<int>(std::min<std::size_t>(setting("TAPEFORMER_EMULATED_DEVICES", 1), kMostDevices));
  return count;
}
std::size_t device_bytes() {
  static const std::size_t bytes = setting("TAPEFORMER_EMULATED_MEMORY", std::size_t{4} << 30);
  return bytes;
}

[[noreturn]] void abort_because(const std::string& what) {
  std::fprintf(stderr, "emulated CUDA: %s\n", what.c_str());
  std::abort();
}

/// The allocation that holds these bytes, or nullptr.
const Block* block_with(const void* from, std::size_t bytes) {
  const auto& blocks = world().blocks;
  const auto* begin = static_cast<const char*>(from);
  auto after = blocks.upper_bound(begin);
  if (after == blocks.begin()) return nullptr;
  --after;
  const auto offset = static_cast<std::size_t>(begin - after->first);
  return offset + bytes <= after->second.bytes ? &after->second : nullptr;
}

bool is_device_memory(const void* from, std::size_t bytes) {
  const Block* block = block_with(from, bytes);
  return block != nullptr && block->kind != Kind::pinned;
}

/// The beginning of a large block is enough, and leaves the rest to the system.
void poison(void* from, std::size_t bytes) {
  std::memset(from, 0xFF, std::min<std::size_t>(bytes, std::size_t{16} << 20));
}

cudaError_t add_block(void** to, std::size_t bytes, Kind kind, int device) {
  if (bytes == 0) return failed(cudaErrorInvalidValue);
  if (kind != Kind::pinned && !take(world().pools[device], bytes)) return failed(cudaErrorMemoryAllocation);
  *to = ::operator new(bytes, kAlignment);
  poison(*to, bytes);
  world().blocks[static_cast<const char*>(*to)] = {bytes, kind, device};
  return cudaSuccess;
}

void remove_block(void* from, Kind kind) {
  const auto found = world().blocks.find(static_cast<const char*>(from));
  if (found == world().blocks.end() || found->second.kind != kind)
    abort_because("memory is freed that was not allocated, or not in this way");
  poison(from, found->second.bytes);
  world().pools[found->second.device].in_use -= found->second.bytes;
  world().blocks.erase(found);
  ::operator delete(from, kAlignment);
}

}  // namespace

namespace tapeformer::emulator {

thread_local int current_device = 0;

World& world() {
  static World* const instance = new World;
  return *instance;
}

cudaError_t failed(cudaError_t error) { return last_error = error; }

void queue(EmulatedStream& stream, std::function<void()> work, std::function<void()> before) {
  if (stream.capture) {
    stream.capture->work.push_back(std::move(work));
    return;
  }
  stream.work.push_back({std::move(work), std::move(before)});
  ++stream.queued;
}

void run_until(EmulatedStream& stream, std::uint64_t position) {
  while (stream.done < position) {
    const std::uint64_t at = stream.done;
    if (const auto before = stream.work.front().before) {
      before();
      if (stream.done != at) continue;  // another thread has run it
    }
    const std::function<void()> work = std::move(stream.work.front().run);
    stream.work.pop_front();
    work();
    ++stream.done;
  }
}

bool spoils_capture(cudaStream_t stream) {
  if (!stream->capture) return false;
  stream->capture->is_spoilt = true;
  return true;
}

bool take(EmulatedPool& pool, std::size_t bytes) {
  if (pool.in_use + bytes > device_bytes()) return false;
  pool.in_use += bytes;
  pool.held = std::max(pool.held, pool.in_use);
  return true;
}

}  // namespace tapeformer::emulator

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "unknown error";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return failed(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {"emulated GPU", {}, device_bytes(), 9, 0, 132};
  properties->uuid.bytes[0] = static_cast<char>(device);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const Lock lock(world().mutex);
  const bool fits = kernel != nullptr && value <= 227 * 1024;
  if (fits) world().allowed[current_device][kernel] = static_cast<std::size_t>(value);
  return fits ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream{current_device, {}};
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(world().mutex);
  run_until(*stream, stream->queued);
  world().ended.emplace_back(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (spoils_capture(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  tapeformer::emulator::finish(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(world().mutex);
  if (spoils_capture(stream)) return failed(cudaErrorStreamCaptureIsolation);
  if (event->stream != nullptr)
    queue(
        *stream, [] {}, [now = *event] { run_until(*now.stream, now.position); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(world().mutex);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(world().mutex);
  if (spoils_capture(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  const auto when = std::make_shared<std::int64_t>();
  queue(*stream, [when] { *when = tapeformer::emulator::microseconds; });
  *event = {stream, stream->queued, when};
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(world().mutex);
  const bool happened = event->stream == nullptr || event->stream->done >= event->position;
  return happened ? cudaSuccess : failed(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const Lock lock(world().mutex);
  if (from->stream == nullptr || to->stream == nullptr) return failed(cudaErrorInvalidValue);
  *milliseconds = static_cast<float>(*to->microseconds - *from->microseconds) / 1000;
  return cudaEventQuery(to);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(world().mutex);
  if (event->stream != nullptr) run_until(*event->stream, event->position);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream) {
  const Lock lock(world().mutex);
  if (spoils_capture(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  return add_block(block, bytes, Kind::pooled, stream->device);
}

cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  const Lock lock(world().mutex);
  if (spoils_capture(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  if (!is_device_memory(block, 0)) abort_because("memory is freed that was not allocated");
  queue(*stream, [block] { remove_block(block, Kind::pooled); });
  return cudaSuccess;
}

cudaError_t cudaMallocManaged(void** block, std::size_t bytes, unsigned) {
  const Lock lock(world().mutex);
  return add_block(block, bytes, Kind::managed, current_device);
}

cudaError_t cudaFree(void* block) {
  const Lock lock(world().mutex);
  remove_block(block, Kind::managed);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) {
  const Lock lock(world().mutex);
  return add_block(block, bytes, Kind::pinned, current_device);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Lock lock(world().mutex);
  *total = device_bytes();
  *free = *total - world().pools[current_device].held;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = &world().pools[device];
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const Lock lock(world().mutex);
  if (attribute != cudaMemPoolAttrReservedMemCurrent) return failed(cudaErrorInvalidValue);
  *static_cast<std::uint64_t*>(value) = pool->held;
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t bytes) {
  const Lock lock(world().mutex);
  pool->held = std::max(pool->in_use, std::min(pool->held, bytes));
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Lock lock(world().mutex);
  const bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
  const auto in_order = [=] {
    return is_device_memory(to, bytes) == to_device && is_device_memory(from, bytes) == from_device;
  };
  if (!in_order()) return failed(cudaErrorInvalidValue);
  const bool waits =
      !to_device ? block_with(to, bytes) == nullptr : !from_device && block_with(from, bytes) == nullptr;
  if (waits && spoils_capture(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  queue(*stream, [=] {
    if (!in_order()) abort_because("a copy that is queued uses memory that has been freed");
    std::memmove(to, from, bytes);
  });
  if (waits) run_until(*stream, stream->queued);  // memory that is not pinned is used before the call returns
  return cudaSuccess;
}

namespace tapeformer::emulator {

void finish(cudaStream_t stream) {
  const Lock lock(world().mutex);
  if (stream->capture) abort_because("a stream is waited for that is captured");
  run_until(*stream, stream->queued);
}

void perform(cudaStream_t stream, std::function<void()> work) {
  {
    const Lock lock(world().mutex);
    if (stream->capture) return queue(*stream, std::move(work));
    run_until(*stream, stream->queued);
  }
  work();
}

void require_device_memory(const char* user, cudaStream_t stream, const void* from, std::size_t bytes) {
  if (from == nullptr) return;
  const Lock lock(world().mutex);
  const Block* block = block_with(from, bytes);
  if (block == nullptr || (block->device != stream->device && block->kind != Kind::pinned))
    abort_because(std::string(user) + " is given memory that is not its device's, or has ended");
}

void require_allowed(const char* user, cudaStream_t stream, const void* kernel, std::size_t shared_bytes) {
  const Lock lock(world().mutex);
  if (shared_bytes > 32 * 1024 && world().allowed[stream->device][kernel] < shared_bytes)
    abort_because(std::string(user) + " was not allowed so much shared memory");
}

}  // namespace tapeformer::emulator
