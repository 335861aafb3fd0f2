#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/storage.h>

#include <malloc.h>
#include <sys/mman.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#define TAPEFORMER_POOL_BYPASSED 1  // every block its own allocation, so that the sanitizer sees each bound
#endif

namespace tapeformer {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kSteps = 8;  // size classes per doubling: at most 12.5 % of a block is wasted
constexpr int kClasses = 64 * kSteps;

struct SizeClass {
  int index;
  std::size_t bytes;
};

SizeClass class_of(std::size_t bytes) {
  if (bytes <= kAlignment * kSteps) {
    const std::size_t units = bytes == 0 ? 1 : (bytes + kAlignment - 1) / kAlignment;
    return {static_cast<int>(units), units * kAlignment};
  }
  const int top = 63 - __builtin_clzll(bytes - 1);  // 2^top < bytes <= 2^(top+1)
  const std::size_t step = (std::size_t{1} << top) / kSteps;
  const std::size_t steps = (bytes + step - 1) / step;  // in (kSteps, 2 kSteps]
  return {(top - 8) * kSteps + static_cast<int>(steps - kSteps), steps * step};
}

struct FreeBlock {
  FreeBlock* next;
};

class Pool {
 public:
  Pool() {
    // Libraries' allocations inside a call stay on one heap that is never trimmed.
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_ARENA_MAX, 1);
    // When threads' scratch memory overlaps for the first time, the system is not asked again.
    mallopt(M_TOP_PAD, 64 << 20);
  }

  void* allocate(std::size_t bytes) {
    const SizeClass size = class_of(bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    statistics_.in_use_bytes += static_cast<std::int64_t>(size.bytes);
    if (statistics_.in_use_bytes > statistics_.peak_bytes) statistics_.peak_bytes = statistics_.in_use_bytes;
    FreeBlock*& head = free_[static_cast<std::size_t>(size.index)];
    if (head != nullptr) {
      void* block = head;
      head = head->next;
      return block;
    }
    return size.bytes >= kHugePage / 2 ? map(size.bytes) : carve(size.bytes);
  }

  void free(void* block, std::size_t bytes) {
    const SizeClass size = class_of(bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    statistics_.in_use_bytes -= static_cast<std::int64_t>(size.bytes);
    FreeBlock*& head = free_[static_cast<std::size_t>(size.index)];
    head = new (block) FreeBlock{head};
  }

  PoolStatistics statistics() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return statistics_;
  }

 private:
  void* map(std::size_t bytes) {
    void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
      throw DeviceError("[memory] the system has no " + std::to_string(bytes >> 20) +
                        " MiB left; held=" + std::to_string(statistics_.held_bytes >> 20) +
                        " MiB; try a smaller batch or a narrower model");
    }
    if (bytes >= kHugePage) madvise(block, bytes, MADV_HUGEPAGE);
    statistics_.held_bytes += static_cast<std::int64_t>(bytes);
    ++statistics_.system_requests;
    return block;
  }

  void* carve(std::size_t bytes) {
    if (chunk_left_ < bytes) {
      chunk_ = static_cast<char*>(map(kHugePage));
      chunk_left_ = kHugePage;
    }
    void* block = chunk_;
    chunk_ += bytes;
    chunk_left_ -= bytes;
    return block;
  }

  std::mutex mutex_;
  std::array<FreeBlock*, kClasses> free_{};
  char* chunk_ = nullptr;
  std::size_t chunk_left_ = 0;
  PoolStatistics statistics_;
};

Pool& pool() {
  static Pool* const instance = new Pool;  // outlives every static tensor
  return *instance;
}

}  // namespace

#if defined(TAPEFORMER_POOL_BYPASSED)
void* pool_allocate(std::size_t bytes) { return ::operator new (bytes, std::align_val_t{kAlignment}); }
void pool_free(void* block, std::size_t) { ::operator delete (block, std::align_val_t{kAlignment}); }
#else
void* pool_allocate(std::size_t bytes) { return pool().allocate(bytes); }
void pool_free(void* block, std::size_t bytes) { pool().free(block, bytes); }
#endif

PoolStatistics pool_statistics() { return pool().statistics(); }

Storage::Storage(std::size_t size, Device where)
    : data(where.is_cuda() ? cuda::allocate(where.index, size) : pool_allocate(size)),
      bytes(size),
      device(where) {}

Storage::Storage(const ForUpload& upload)
    : data(cuda::allocate_for_upload(upload.where.index, upload.size)),
      bytes(upload.size),
      device(upload.where) {}

Storage::Storage(void* adopted, std::size_t size, std::function<void()> release_adopted)
    : data(adopted), bytes(size), release(std::move(release_adopted)) {}

Storage::~Storage() {
  if (release) {
    release();
  } else if (device.is_cuda()) {
    cuda::release(device.index, data, bytes);
  } else {
    pool_free(data, bytes);
  }
}

}  // namespace tapeformer
