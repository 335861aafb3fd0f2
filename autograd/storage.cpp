#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/storage.h>

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace tapeformer {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kBypassed = true;  // one allocation per block, so that the sanitizer checks each bound
#else
constexpr bool kBypassed = false;
#endif

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kSteps = 8;  // size classes per doubling above 512 bytes: at most 12.5 % of a block is wasted
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

/// The free blocks of a size class, each of which holds the address of the next.
struct FreeList {
  void* first = nullptr;
  int count = 0;

  void* pop() {
    --count;
    return std::exchange(first, *static_cast<void**>(first));
  }
  void push(void* block) {
    *static_cast<void**>(block) = std::exchange(first, block);
    ++count;
  }
  /// Moves `most` blocks, or as many as there are.
  void move_to(FreeList& other, int most) {
    for (int left = std::min(most, count); left > 0; --left) other.push(pop());
  }
};

constexpr std::size_t kLargestCached = 8 << 10;
constexpr int kCachedClasses = 41;  // up to that of kLargestCached

/// The number of blocks that a thread and the pool exchange at once: 2 to 32, of at most 16 KiB together.
int batch_size(std::size_t block_bytes) {
  constexpr int kMost = 32;
  return std::min(static_cast<int>(2 * kLargestCached >> (64 - __builtin_clzll(block_bytes - 1))), kMost);
}

/// A thread's own small free blocks: it takes the pool's lock per batch of blocks, not per block. Needs no
/// construction, and so works for tensors in thread_local and static objects too.
class Cache {
 public:
  /// Null if there is none.
  void* take(SizeClass size) {
    FreeList& free = free_[static_cast<std::size_t>(size.index)];
    if (free.count == 0) return nullptr;
    count(static_cast<std::int64_t>(size.bytes));
    return free.pop();
  }
  /// False if there is no room.
  bool put(SizeClass size, void* block) {
    FreeList& free = free_[static_cast<std::size_t>(size.index)];
    // With room for two batches, a thread that alternately allocates and frees seldom needs the pool.
    if (!open_ || free.count >= 2 * batch_size(size.bytes)) return false;
    count(-static_cast<std::int64_t>(size.bytes));
    free.push(block);
    return true;
  }

 private:
  friend class Pool;
  void count(std::int64_t bytes) {
    const std::int64_t now = in_use_.load(std::memory_order_relaxed) + bytes;
    in_use_.store(now, std::memory_order_relaxed);
    if (now > peak_.load(std::memory_order_relaxed)) peak_.store(now, std::memory_order_relaxed);
  }

  std::array<FreeList, kCachedClasses> free_{};
  // The bytes not yet in the pool's count, and their peak: written by this thread, and read by others.
  std::atomic<std::int64_t> in_use_{0}, peak_{0};
  bool open_ = false, was_open_ = false;
};
thread_local Cache cache;

class Pool {
 public:
  Pool() {
    // Libraries' allocations inside a call stay on one heap that is never trimmed.
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_ARENA_MAX, 1);
    // Spare room, so that the first overlap of threads' scratch memory needs no request to the system.
    mallopt(M_TOP_PAD, 64 << 20);
  }

  void* allocate(SizeClass size) {
    if (!cache.was_open_) open();
    const std::lock_guard<std::mutex> lock(mutex_);
    void* block = take(size);
    count(static_cast<std::int64_t>(size.bytes));
    return block;
  }

  void free(SizeClass size, void* block) {
    if (!cache.was_open_) open();
    const std::lock_guard<std::mutex> lock(mutex_);
    count(-static_cast<std::int64_t>(size.bytes));
    FreeList &shared = free_[static_cast<std::size_t>(size.index)], *own = cached(size);
    if (own != nullptr) own->move_to(shared, batch_size(size.bytes));
    (own != nullptr ? *own : shared).push(block);
  }

  PoolStatistics statistics() {
    const std::lock_guard<std::mutex> lock(mutex_);
    note_peak();
    PoolStatistics now = statistics_;
    for (const Cache* each : caches_) now.in_use_bytes += each->in_use_.load(std::memory_order_relaxed);
    return now;
  }

 private:
  /// Makes this thread use its cache until it ends, when its blocks go back to the pool.
  void open() {
    struct Closing {
      Pool& pool;
      ~Closing() { pool.close(); }
    };
    const std::lock_guard<std::mutex> lock(mutex_);
    caches_.push_back(&cache);
    cache.open_ = cache.was_open_ = true;
    thread_local const Closing closing{*this};
  }

  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    count(0);
    cache.open_ = false;
    caches_.erase(std::find(caches_.begin(), caches_.end(), &cache));
    for (std::size_t index = 0; index < kCachedClasses; ++index)
      cache.free_[index].move_to(free_[index], INT_MAX);
  }

  /// This thread's own blocks, or nullptr if it keeps none of this size.
  static FreeList* cached(SizeClass size) {
    const bool keeps = cache.open_ && size.index < kCachedClasses;
    return keeps ? &cache.free_[static_cast<std::size_t>(size.index)] : nullptr;
  }

  void* take(SizeClass size) {
    FreeList& free = free_[static_cast<std::size_t>(size.index)];
    if (free.count == 0) return size.bytes >= kHugePage / 2 ? map(size.bytes) : carve(size.bytes);
    void* block = free.pop();
    if (FreeList* own = cached(size)) free.move_to(*own, batch_size(size.bytes) - 1);
    return block;
  }

  /// Counts what this thread's cache has counted, and `bytes`.
  void count(std::int64_t bytes) {
    note_peak();
    statistics_.in_use_bytes += cache.in_use_.load(std::memory_order_relaxed) + bytes;
    cache.in_use_.store(0, std::memory_order_relaxed);
    cache.peak_.store(0, std::memory_order_relaxed);
    note_peak();
  }

  /// The peak is exact as long as one thread allocates. With several it may be too high, by the caches'
  /// peaks, which need not have been at the same time.
  void note_peak() {
    std::int64_t most = statistics_.in_use_bytes;
    for (const Cache* each : caches_) most += each->peak_.load(std::memory_order_relaxed);
    if (most > statistics_.peak_bytes) statistics_.peak_bytes = most;
  }

  void* map(std::size_t bytes) {
    void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
      throw DeviceError(
          format("[memory] the system does not have {} MiB left; held={} MiB; try a smaller batch, a "
                 "narrower model or a higher limit",
                 bytes >> 20, statistics_.held_bytes >> 20));
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
  std::array<FreeList, kClasses> free_{};
  char* chunk_ = nullptr;
  std::size_t chunk_left_ = 0;
  PoolStatistics statistics_;  // in_use_bytes: without the caches' counts
  std::vector<const Cache*> caches_;
};

Pool& pool() {
  static Pool* const instance = new Pool;  // outlives every static tensor
  return *instance;
}

}  // namespace

void* pool_allocate(std::size_t bytes) {
  if (kBypassed) return ::operator new (bytes, std::align_val_t{kAlignment});
  const SizeClass size = class_of(bytes);
  if (size.index < kCachedClasses) {
    if (void* block = cache.take(size); block != nullptr) return block;
  }
  return pool().allocate(size);
}

void pool_free(void* block, std::size_t bytes) {
  if (kBypassed) return ::operator delete (block, std::align_val_t{kAlignment});
  const SizeClass size = class_of(bytes);
  if (size.index < kCachedClasses && cache.put(size, block)) return;
  pool().free(size, block);
}

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
